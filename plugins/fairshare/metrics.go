package fairshare

import (
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

const metricsPrefix = "lockstep_queue_"

var (
	deservedDesc = metrics.NewDesc(metricsPrefix+"deserved", "What a queue is entitled to, in base units.",
		[]string{"queue", "pool", "resource"}, nil, metrics.ALPHA, "")
	runningDesc = metrics.NewDesc(metricsPrefix+"allocated",
		"What the pods of a queue and of those below it have, in base units.", []string{"queue", "pool", "resource"}, nil,
		metrics.ALPHA, "")
	shareDesc = metrics.NewDesc(metricsPrefix+"share",
		"The largest part of a resource of the cluster that a queue has, from 0 to 1.", []string{"queue"}, nil,
		metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc(metricsPrefix+"waiting_jobs",
		"Complete gangs, and pods in none, that wait for their turn or for room.", []string{"queue"}, nil, metrics.ALPHA, "")

	waitDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "lockstep", Subsystem: "queue", Name: "wait_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "How long a gang, or a pod in none, waited for its turn.",
		Buckets: metrics.ExponentialBuckets(0.001, 4, 12),
	}, []string{"queue"})

	registerOnce sync.Once
)

func registerMetrics(d *Dispatcher) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(waitDuration)
		legacyregistry.CustomMustRegister(&collector{d: d})
	})
}

// collector reads the book when metrics are scraped.
type collector struct {
	metrics.BaseStableCollector
	d *Dispatcher
}

var _ metrics.StableCollector = &collector{}

// DescribeWithStability describes the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{deservedDesc, runningDesc, shareDesc, waitingDesc} {
		ch <- desc
	}
}

// CollectWithStability collects the metrics.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	c.d.lock()
	standings, waiting := c.d.book.Standings(), c.d.book.Unplaced()
	c.d.mu.Unlock()
	gauge := func(desc *metrics.Desc, value float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, labels...)
	}
	amounts := func(desc *metrics.Desc, queue string, v resource.Vector) {
		for name, amount := range v {
			pool, plain := resource.Split(name)
			gauge(desc, resource.InUnits(plain, amount), queue, pool, string(plain))
		}
	}
	for queue, s := range standings {
		if strings.HasSuffix(queue, queueing.Own("")) {
			continue // its own pods count as the queue's
		}
		amounts(deservedDesc, queue, s.Deserved)
		amounts(runningDesc, queue, s.Running)
		gauge(shareDesc, s.Share, queue)
		gauge(waitingDesc, float64(waiting[queue]), queue)
	}
}
