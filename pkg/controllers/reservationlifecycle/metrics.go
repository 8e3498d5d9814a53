package reservationlifecycle

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// collectWithin is how long the metrics wait for the cache.
const collectWithin = time.Second

var (
	countDesc = metrics.NewDesc("lockstep_reservation_reservations", "Reservations, by phase.",
		[]string{"phase"}, nil, metrics.ALPHA, "")
	ageDesc = metrics.NewDesc("lockstep_reservation_age_seconds",
		"Age of the oldest Reservation of a phase that is not final, from its creation or startTime.",
		[]string{"phase"}, nil, metrics.ALPHA, "")
	reservedDesc = metrics.NewDesc("lockstep_reservation_reserved",
		"What is held by Reservations, used or not, in base units.", []string{"resource"}, nil, metrics.ALPHA, "")
	allocatedDesc = metrics.NewDesc("lockstep_reservation_allocated",
		"How much of what is held by Reservations owners use, in base units.", []string{"resource"}, nil, metrics.ALPHA, "")

	expired = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: "lockstep", Subsystem: "reservation", Name: "expired_total", StabilityLevel: metrics.ALPHA,
		Help: "Reservations that have run out.",
	})

	registerOnce sync.Once
)

// registerMetrics registers them, to be served with those of the manager.
func registerMetrics(reader client.Reader, clock clock.PassiveClock) {
	registerOnce.Do(func() {
		c := &collector{reader: reader, clock: clock}
		expired.Create(nil)
		c.Create(nil, c)
		ctrlmetrics.Registry.MustRegister(expired, c)
	})
}

// collector counts Reservations when metrics are asked for.
type collector struct {
	metrics.BaseStableCollector
	reader client.Reader
	clock  clock.PassiveClock
}

var _ metrics.StableCollector = &collector{}

// DescribeWithStability sends the descriptions of the metrics.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, desc := range []*metrics.Desc{countDesc, ageDesc, reservedDesc, allocatedDesc} {
		ch <- desc
	}
}

// CollectWithStability reads them. Where Reservations cannot be read, there are none.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWithin)
	defer cancel()
	var list v1alpha1.ReservationList
	if err := c.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	s := sum(list.Items, c.clock.Now())
	gauge := func(desc *metrics.Desc, value float64, label string) {
		ch <- metrics.NewLazyConstMetric(desc, metrics.GaugeValue, value, label)
	}
	for phase, count := range s.count {
		gauge(countDesc, float64(count), string(phase))
	}
	for phase, age := range s.age {
		gauge(ageDesc, age.Seconds(), string(phase))
	}
	for name, amount := range s.reserved {
		gauge(reservedDesc, resource.InUnits(name, amount), string(name))
		gauge(allocatedDesc, resource.InUnits(name, s.allocated[name]), string(name))
	}
}

// sums are what is counted over all Reservations.
type sums struct {
	count               map[v1alpha1.ReservationPhase]int
	age                 map[v1alpha1.ReservationPhase]time.Duration
	reserved, allocated resource.Vector
}

// sum counts Reservations, and adds up what they hold: not placements that were used up,
// and nothing of Reservations that have ended.
func sum(list []v1alpha1.Reservation, now time.Time) sums {
	s := sums{
		count: map[v1alpha1.ReservationPhase]int{
			v1alpha1.ReservationPending: 0, v1alpha1.ReservationAvailable: 0, v1alpha1.ReservationSucceeded: 0,
			v1alpha1.ReservationFailed: 0,
		},
		age: map[v1alpha1.ReservationPhase]time.Duration{}, reserved: resource.Vector{}, allocated: resource.Vector{},
	}
	for i := range list {
		rsv := &list[i]
		phase := cmp.Or(rsv.Status.Phase, v1alpha1.ReservationPending)
		s.count[phase]++
		if reservationstate.Ended(phase) {
			continue
		}
		s.age[phase] = max(s.age[phase], now.Sub(reservationstate.Start(rsv)))
		for _, p := range reservationstate.Held(rsv) {
			s.reserved.Add(resource.FromList(p.Allocatable), 1)
			s.allocated.Add(resource.FromList(p.Allocated), 1)
		}
	}
	return s
}
