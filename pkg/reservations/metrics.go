package reservations

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	metricsNamespace = "lockstep"
	metricsSubsystem = "reservation"
)

var (
	commitDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "commit_duration_seconds",
		StabilityLevel: metrics.ALPHA,
		Help:           "Time from when all placements of a Reservation were found until its status said so.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 14),
	})

	registerOnce sync.Once
)

// registerMetrics registers the metrics of the first registry of the process.
func registerMetrics(r *Registry) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(commitDuration)
		legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "held_placements", StabilityLevel: metrics.ALPHA,
			Help: "Placements of Reservations for which capacity is held.",
		}, func() float64 { return float64(r.held.Load()) }))
	})
}
