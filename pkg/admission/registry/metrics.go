package registry

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

const (
	metricsNamespace = "lockstep"
	metricsSubsystem = "gang"
)

var (
	gangsGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "gangs", StabilityLevel: metrics.ALPHA,
		Help: "Gangs by profile and state: incomplete, unschedulable, running.",
	}, []string{"profile", "state"})
	longestWait = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "longest_wait_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time since the gang that waits the longest had all members that it needs, by profile; " +
			"0 where no complete gang waits.",
	}, []string{"profile"})
	membersHeld = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "members_held", StabilityLevel: metrics.ALPHA,
		Help: "Members that hold capacity and do not bind yet, by profile.",
	}, []string{"profile"})
	holdsGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Name: "holds", StabilityLevel: metrics.ALPHA,
		Help: "Holds in the ledger, by reason.",
	}, []string{"reason"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(gangsGauge, longestWait, membersHeld, holdsGauge)
})

// measure sets the gauges.
func (r *Registry) measure() {
	for name, p := range r.all() {
		var c gangstate.Counts
		p.WithGangs(func(s *gangstate.Gangs) { c = s.Count() })
		wait := 0.0
		if !c.Oldest.IsZero() {
			wait = r.clock.Since(c.Oldest).Seconds()
		}
		longestWait.WithLabelValues(name).Set(wait)
		membersHeld.WithLabelValues(name).Set(float64(c.Held))
		gangsGauge.WithLabelValues(name, "incomplete").Set(float64(c.Incomplete))
		gangsGauge.WithLabelValues(name, "unschedulable").Set(float64(c.Unschedulable))
		gangsGauge.WithLabelValues(name, "running").Set(float64(c.Running))
	}
	for _, reason := range hold.Reasons() {
		holdsGauge.WithLabelValues(string(reason)).Set(float64(r.holds.Count(reason)))
	}
}
