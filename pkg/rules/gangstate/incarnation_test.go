package gangstate

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// history is a second incarnation, computed from all that ever lived in it.
type history struct {
	live map[types.UID]*podT
	// had are the creations of all pods of each controller that were there since it began.
	had map[types.UID][]time.Time
}

func (h *history) lives(owner types.UID) bool {
	for _, pod := range h.live {
		if gangspec.OriginOf(pod).Controller == owner {
			return true
		}
	}
	return false
}

func (h *history) come(pod *podT) {
	owner := gangspec.OriginOf(pod).Controller
	if h.had[owner] == nil || owner == "" && !h.lives("") {
		for other := range h.had {
			if !h.lives(other) {
				delete(h.had, other)
			}
		}
	}
	h.live[pod.UID] = pod
	h.had[owner] = append(h.had[owner], pod.CreationTimestamp.Time)
}

func (h *history) includes(f finished) bool {
	if len(h.live) == 0 || h.lives(f.origin.Controller) {
		return true
	}
	for _, pod := range h.live {
		since := []time.Time{pod.CreationTimestamp.Time}
		if owner := gangspec.OriginOf(pod).Controller; owner != "" {
			since = h.had[owner]
		}
		for _, at := range since {
			if f.ended.After(at) {
				return true
			}
		}
	}
	return false
}

// TestIncarnationAgainstRecount: whatever comes and goes, what is counted of the members that succeeded
// equals a look at each of them.
func TestIncarnationAgainstRecount(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := newIncarnation()
		h := &history{live: map[types.UID]*podT{}, had: map[types.UID][]time.Time{}}
		for n := range 200 {
			owner, when := []string{"", "a", "b", "c"}[random.IntN(4)], time.Duration(random.IntN(20))*time.Second
			pod := podOf(strconv.Itoa(random.IntN(20)), aged(-when), ended(when), as("r"))
			if owner != "" {
				owned(owner)(pod)
			}
			switch random.IntN(4) {
			case 0, 1:
				if old := h.live[pod.UID]; old != nil {
					p.end(old.UID)
					delete(h.live, pod.UID)
				} else {
					p.live(pod)
					h.come(pod)
				}
			case 2:
				if _, known := p.finished[pod.UID]; !known {
					p.succeed(pod)
				}
			case 3:
				if _, known := p.finished[pod.UID]; known {
					p.drop(pod.UID)
				}
			}
			want := 0
			for _, f := range p.finished {
				if h.includes(f) {
					want++
				}
			}
			if got, _ := p.counted(); got.N != want || got.Roles["r"] != want {
				t.Fatalf("seed %d, step %d: %d and %v count, want %d", seed, n, got.N, got.Roles, want)
			}
		}
	}
}

func TestIncarnation(t *testing.T) {
	const never = time.Duration(math.MinInt64)
	lives := func(changes ...func(*podT)) *podT { return podOf("lives", changes...) }
	for sentence, c := range map[string]struct {
		live  []*podT
		owner types.UID
		ended time.Duration
		want  bool
	}{
		"nothing is unfinished":                        {owner: "a", want: true},
		"the controller of one that lives":             {live: []*podT{lives(owned("a"))}, owner: "a", ended: -time.Hour, want: true},
		"it ended while the oldest was there":          {live: []*podT{lives(owned("b"), aged(time.Minute)), lives(owned("b"))}, owner: "a", ended: -time.Second, want: true},
		"it ended before the oldest was created":       {live: []*podT{lives(owned("b"), aged(time.Minute)), lives(owned("b"))}, owner: "a", ended: -time.Hour},
		"it ended in the second in which that was":     {live: []*podT{lives(owned("b"))}, owner: "a"},
		"nobody knows when, and it is somebody else's": {live: []*podT{lives(owned("b"))}, owner: "a", ended: never},
	} {
		t.Run(sentence, func(t *testing.T) {
			life := newIncarnation()
			for _, pod := range c.live {
				life.live(pod)
			}
			ended := start.Add(c.ended)
			if c.ended == never {
				ended = time.Time{}
			}
			if got := life.includes(c.owner, ended); got != c.want {
				t.Errorf("included: %t", got)
			}
		})
	}
}

// TestJobsOfAJobSet: if the Jobs of a JobSet are made together, those that are done belong to the incarnation of the
// others, even if all pods of these were made again since; those of an earlier attempt do not.
func TestJobsOfAJobSet(t *testing.T) {
	of := func(job, attempt string, created time.Time) *v1.Pod {
		p := podOf("p", owned(job))
		p.CreationTimestamp = metav1.NewTime(created)
		p.Labels = map[string]string{v1alpha1.JobSetUIDLabel: "set", gangspec.JobSetAttemptLabel: attempt}
		return p
	}
	l := newIncarnation()
	l.live(of("one", "1", start))
	for attempt, want := range map[string]bool{"1": true, "0": false} {
		done := of("another", attempt, start.Add(-2*time.Hour))
		if got := l.includes(gangspec.OriginOf(done).Controller, start.Add(-time.Hour)); got != want {
			t.Errorf("one of attempt %s belongs to attempt 1: %t", attempt, got)
		}
	}
}
