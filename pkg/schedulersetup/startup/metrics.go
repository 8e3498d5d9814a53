package startup

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	duration = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "lockstep", Subsystem: "catchup", Name: "duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time from when this process began to lead to when its caches had what was stored then, and scheduling began.",
	})

	registerOnce sync.Once
)

func caughtUp(took time.Duration) {
	registerOnce.Do(func() { legacyregistry.MustRegister(duration) })
	duration.Set(took.Seconds())
}
