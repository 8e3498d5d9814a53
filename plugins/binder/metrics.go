package binder

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	metricsNamespace = "lockstep"
	metricsSubsystem = "binder"
)

var (
	doubtful = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "doubtful_bindings_total",
		StabilityLevel: metrics.ALPHA,
		Help: "Bindings whose call did not succeed, by what the pod said then: bound, elsewhere, gone, failed; abandoned " +
			"where the scheduler went down first.",
	}, []string{"outcome"})
	openBindings = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "open_bindings", StabilityLevel: metrics.ALPHA,
		Help: "Bindings with unknown outcome; their nodes stay held until it is known.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(doubtful, openBindings)
	// Series exist from the start: increase() misses the first count of a series that begins with it.
	for _, o := range []outcome{bound, elsewhere, gone, failed} {
		doubtful.WithLabelValues(o.String())
	}
	doubtful.WithLabelValues("abandoned")
})
