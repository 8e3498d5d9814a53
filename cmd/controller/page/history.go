package page

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

const (
	// sampleEvery is how often the numbers of queues are noted.
	sampleEvery = 10 * time.Second
	// maxSamples is how many are kept: an hour.
	maxSamples = 360
	// maxSeries is how many pairs of a queue and a resource are followed at a time. All of them take 6 MB.
	maxSeries = 1000
)

// amount is how much of a resource, in its own unit; NaN where it is not known, which is null in JSON.
type amount float64

// MarshalJSON implements json.Marshaler.
func (a amount) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(a)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(a))
}

// series is what a queue deserved and had of a resource, one of each for each time of the history.
type series struct {
	Queue     string          `json:"queue"`
	Resource  v1.ResourceName `json:"resource"`
	Deserved  []amount        `json:"deserved"`
	Allocated []amount        `json:"allocated"`

	seen bool // in the latest sample
}

// history is what queues deserved and had, for the last hour at most.
type history struct {
	// Times are the times of the samples, in seconds since 1970, the oldest first.
	Times  []int64   `json:"times"`
	Series []*series `json:"series"`
	// LeftOut is how many pairs of a queue and a resource are not followed, as there are too many.
	LeftOut int `json:"leftOut"`
}

type seriesKey struct {
	queue    string
	resource v1.ResourceName
}

// add notes how queues stand. A queue that is gone is forgotten when the hour has passed; it has no numbers meanwhile.
func (h *history) add(at time.Time, queues []view.Queue) {
	unknown := slices.Repeat([]amount{amount(math.NaN())}, len(h.Times))
	h.Times = append(h.Times, at.Unix())
	byKey := make(map[seriesKey]*series, len(h.Series))
	for _, s := range h.Series {
		byKey[seriesKey{s.Queue, s.Resource}], s.seen = s, false
	}
	h.LeftOut = 0
	for _, q := range queues {
		for _, r := range q.Resources {
			s := byKey[seriesKey{q.Name, r.Name}]
			if s == nil {
				if len(h.Series) == maxSeries {
					h.LeftOut++
					continue
				}
				s = &series{Queue: q.Name, Resource: r.Name, Deserved: slices.Clone(unknown), Allocated: slices.Clone(unknown)}
				h.Series = append(h.Series, s)
			}
			s.note(amount(r.Deserved.AsApproximateFloat64()), amount(r.Allocated.AsApproximateFloat64()))
			s.seen = true
		}
	}
	for _, s := range h.Series {
		if !s.seen {
			s.note(amount(math.NaN()), amount(math.NaN()))
		}
	}
	h.forget()
}

func (s *series) note(deserved, allocated amount) {
	s.Deserved, s.Allocated = append(s.Deserved, deserved), append(s.Allocated, allocated)
}

// forget drops what is older than an hour.
func (h *history) forget() {
	drop := max(0, len(h.Times)-maxSamples)
	h.Times = append(h.Times[:0], h.Times[drop:]...)
	kept := h.Series[:0]
	for _, s := range h.Series {
		s.Deserved, s.Allocated = append(s.Deserved[:0], s.Deserved[drop:]...), append(s.Allocated[:0], s.Allocated[drop:]...)
		if s.known() {
			kept = append(kept, s)
		}
	}
	clear(h.Series[len(kept):])
	h.Series = kept
}

func (s *series) known() bool {
	return slices.ContainsFunc(s.Allocated, func(a amount) bool { return !math.IsNaN(float64(a)) })
}

func (h *history) clone() history {
	c := history{Times: slices.Clone(h.Times), Series: make([]*series, 0, len(h.Series)), LeftOut: h.LeftOut}
	for _, s := range h.Series {
		copied := *s
		copied.Deserved, copied.Allocated = slices.Clone(s.Deserved), slices.Clone(s.Allocated)
		c.Series = append(c.Series, &copied)
	}
	return c
}
