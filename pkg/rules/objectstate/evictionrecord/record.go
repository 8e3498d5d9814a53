// Package evictionrecord has the record of the eviction of a whole gang, as a value for programs: the sentences that
// are written beside it are for people only. It is the value of v1alpha1.EvictedAnnotation, so a restart does not lose
// it.
package evictionrecord

import (
	"encoding/json"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Record is when a gang was evicted, for whom, and by whom it comes back. It is on the PodGroup of the gang, and on the
// event about what made its pods. On a Job that was suspended for it there are only At, For and Until.
type Record struct {
	// At is when it was evicted, in seconds, as the creation of pods.
	At time.Time `json:"at"`
	// For is the preemptor, in the words that users get; empty if it is not known.
	For string `json:"for,omitempty"`
	// Gang is the gang, as namespace/name.
	Gang string `json:"gang,omitempty"`
	// Job is the Job that made the first of its pods; empty for none.
	Job string `json:"job,omitempty"`
	// Until is when the last pod of a Job that was suspended should have ended: pods that are still terminating then, on a
	// node that is down for example, are not waited for.
	Until time.Time `json:"until,omitzero"`
	Demand
}

// Demand is what a gang had in its queue when it was evicted. Until its pods have been made again its queue asks for
// that. It is empty where no queue does.
type Demand struct {
	// Scheduler is the profile that its pods name, and Queue their queue.
	Scheduler string `json:"scheduler,omitempty"`
	Queue     string `json:"queue,omitempty"`
	// Requests are what they had, by pool of nodes: cpu in thousandths, anything else in whole units. They are numbers,
	// since users may write the annotation, too, and there are quantities that take minutes to read.
	Requests map[string]resource.Vector `json:"requests,omitempty"`
}

// New returns the record of an eviction for a preemptor.
func New(at time.Time, preemptor string) Record {
	return Record{At: at.UTC().Truncate(time.Second), For: preemptor}
}

// Read reads the value of the annotation. It returns the zero value if there is none, or it cannot be read.
func Read(value string) (r Record) {
	if json.Unmarshal([]byte(value), &r) != nil {
		return Record{}
	}
	return r
}

// Annotation returns the value of the annotation.
func (r Record) Annotation() string {
	value, _ := json.Marshal(r) // it never fails: no clock has a time that cannot be encoded
	return string(value)
}

// Counts reports whether it still counts, if it does for so long. The time may be that of another clock.
func (r Record) Counts(now time.Time, hold time.Duration) bool { return now.Sub(r.At).Abs() < hold }
