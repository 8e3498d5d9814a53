package preemption

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	metricsNamespace = "lockstep"
	metricsSubsystem = "preemption"
)

var (
	searchDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "search_duration_seconds",
		StabilityLevel: metrics.ALPHA,
		Help:           "Time that a search for victims kept the scheduling thread.",
		Buckets:        metrics.ExponentialBuckets(0.0001, 2, 16),
	})
	searchesCutShort = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "searches_cut_short_total",
		StabilityLevel: metrics.ALPHA,
		Help:           "Searches for victims that ended because their time was up.",
	})
	preemptions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "total", StabilityLevel: metrics.ALPHA,
		Help: "Preemptions that were carried out, by action: preempt, reclaim.",
	}, []string{"action"})
	victimsTotal = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "victims_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods that were evicted, or called off on their way to a node.",
	})
	evictionErrors = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "errors_total", StabilityLevel: metrics.ALPHA,
		Help: "Evictions and nominations that the API server did not take.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(searchDuration, searchesCutShort, preemptions, victimsTotal, evictionErrors)
	// These series exist from the start: increase() misses the first count of a new series.
	for _, action := range []string{"preempt", "reclaim"} {
		preemptions.WithLabelValues(action)
	}
})
