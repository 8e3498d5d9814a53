package lease

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var refused = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "lockstep", Subsystem: "lease", Name: "refused_writes_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes that were not sent, by why: not_held, lapsed, taken, given_back.",
}, []string{"reason"})

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(refused)
	// These series exist from the start: increase() misses the first count of a series that begins with it.
	for _, r := range []reason{notHeld, lapsed, taken, givenBack} {
		refused.WithLabelValues(string(r))
	}
})
