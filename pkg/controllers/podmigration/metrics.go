package podmigration

import (
	"sync"

	"k8s.io/component-base/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	ended = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "lockstep", Subsystem: "migration", Name: "migrations_total", StabilityLevel: metrics.ALPHA,
		Help: "PodMigrations that have come to their end, by phase and by the reason of their condition Complete.",
	}, []string{"phase", "reason"})

	registerOnce sync.Once
)

// registerMetrics registers the metrics with those of the manager.
func registerMetrics() {
	registerOnce.Do(func() {
		ended.Create(nil)
		ctrlmetrics.Registry.MustRegister(ended)
	})
}
