package gang

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestLifeAgainstRecount: whatever comes and goes, what is counted of the members that
// succeeded is what a look at each of them says.
func TestLifeAgainstRecount(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := newPast()
		live := map[types.UID]*podT{}
		for n := range 200 {
			owner, when := strconv.Itoa(random.IntN(3)), time.Duration(random.IntN(20))*time.Second
			pod := podOf(strconv.Itoa(random.IntN(20)), owned(owner), aged(-when), ended(when))
			switch random.IntN(4) {
			case 0, 1:
				if old := live[pod.UID]; old != nil {
					p.unfinished(old, false)
					delete(live, pod.UID)
				} else {
					p.unfinished(pod, true)
					live[pod.UID] = pod
				}
			case 2:
				if _, known := p.succeeded[pod.UID]; !known {
					p.add(pod.UID, finished{owner: ownerOf(pod), role: "r", ended: EndOf(pod)})
				}
			case 3:
				if _, known := p.succeeded[pod.UID]; known {
					p.drop(pod.UID)
				}
			}
			life := &Life{}
			for _, pod := range live {
				life.Add(pod)
			}
			want := 0
			for _, f := range p.succeeded {
				if life.Includes(f.owner, f.ended) {
					want++
				}
			}
			if got := p.counted(); got.n != want || got.roles["r"] != want {
				t.Fatalf("seed %d, step %d: %d and %v count, want %d", seed, n, got.n, got.roles, want)
			}
		}
	}
}

func TestLife(t *testing.T) {
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
			var life Life
			for _, pod := range c.live {
				life.Add(pod)
			}
			ended := start.Add(c.ended)
			if c.ended == never {
				ended = time.Time{}
			}
			if got := life.Includes(c.owner, ended); got != c.want {
				t.Errorf("included: %t", got)
			}
		})
	}
}
