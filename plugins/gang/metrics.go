package gang

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	metricsNamespace = "lockstep"
	metricsSubsystem = "gang"
)

var (
	attempts = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "attempts_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to plan a group of gangs, by result: planned, unschedulable, error.",
	}, []string{"result"})
	planDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "plan_duration_seconds",
		StabilityLevel: metrics.ALPHA,
		Help:           "Time that an attempt kept the scheduling thread.",
		Buckets:        metrics.ExponentialBuckets(0.0001, 2, 16),
	})
	startDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "complete_to_bound_seconds",
		StabilityLevel: metrics.ALPHA,
		Help:           "Time from when a gang had all members that it needs to when its minimum was bound.",
		Buckets:        metrics.ExponentialBuckets(0.005, 2, 18),
	})
	membersUnfit = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "members_unfit_total", StabilityLevel: metrics.ALPHA,
		Help: "Members that did not fit on the node of their plan, so that the plan was made again.",
	})
	roundsFailed = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "rounds_failed_total", StabilityLevel: metrics.ALPHA,
		Help: "Rounds that failed although a plan placed the whole minimum, or that ran out of time, " +
			"and gave back what was held.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(attempts, planDuration, startDuration, membersUnfit, roundsFailed)
	// Series exist from the start: increase() misses the first count of a series that begins with it.
	for _, result := range []string{"planned", "unschedulable", "error"} {
		attempts.WithLabelValues(result)
	}
})
