package decisions

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var start = time.Unix(1000, 0)

func placement(gang, result string) Decision {
	return Decision{Kind: Placement, Profile: "p", Gangs: []string{gang}, Need: "4 members", Domains: []Domain{{Name: "rack a", Outcome: "3 of 4 members fit"}}, Result: result}
}

// TestSameAgain: a decision that is made once more is counted, and pushes nothing out.
func TestSameAgain(t *testing.T) {
	l := New()
	preemption := placement("ns/a", NoVictims)
	preemption.Kind = Preemption
	for i := range 100 {
		at := start.Add(time.Duration(i) * time.Second)
		news := l.Add("ns/a", at, placement("ns/a", Unplaced))
		if more := l.Add("ns/a", at, preemption); news != (i == 0) || more != news {
			t.Fatalf("decision %d is news: %t, %t", i, news, more)
		}
	}
	if !l.Add("ns/a", start.Add(time.Hour), placement("ns/a", Placed)) {
		t.Error("that it is placed is no news")
	}
	got := l.Of("ns/a")
	if len(got) != 3 || got[0].Times != 100 || got[1].Times != 100 || got[2].Result != Placed || !got[0].Last.Time.Equal(start.Add(99*time.Second)) {
		t.Errorf("remembered: %+v", got)
	}
	if n := len(l.Of("ns/b")); n > 0 {
		t.Errorf("%d decisions of another gang", n)
	}
}

// TestInTurn: decisions that are made in turn push nothing out either, and the latest decision comes last.
func TestInTurn(t *testing.T) {
	l := New()
	for i, result := range []string{Unplaced, Evict, Withdrawn, Evict, Withdrawn, Evict, Withdrawn, Evict} {
		l.Add("ns/a", start.Add(time.Duration(i)*time.Second), placement("ns/a", result))
	}
	var got []string
	for _, d := range l.Of("ns/a") {
		got = append(got, fmt.Sprint(d.Result, " ", d.Times, " ", d.At.Sub(start), " ", d.Last.Sub(start)))
	}
	if want := []string{"Unplaced 1 0s 0s", "Withdrawn 3 2s 6s", "Evict 4 1s 7s"}; !slices.Equal(got, want) {
		t.Errorf("remembered %q, want %q", got, want)
	}
}

// TestBounds: only so much is remembered, the latest of each.
func TestBounds(t *testing.T) {
	l := New()
	for i := range PerGroup + 5 {
		l.Add("ns/a", start.Add(time.Duration(i)*time.Second), placement("ns/a", fmt.Sprint(i)))
	}
	if got := l.Of("ns/a"); len(got) != PerGroup || got[0].Result != "5" {
		t.Errorf("%d decisions, the first %s, want %d from 5 on", len(got), got[0].Result, PerGroup)
	}
	for i := range Groups {
		name := fmt.Sprintf("ns/%04d", i)
		l.Add(name, start.Add(time.Minute+time.Duration(i)*time.Second), placement(name, Unplaced))
	}
	if len(l.Of("ns/a")) > 0 || len(l.All()) != Groups {
		t.Errorf("%d decisions in all, %d of the oldest group, want %d and none", len(l.All()), len(l.Of("ns/a")), Groups)
	}
	wide := placement("ns/wide", Unplaced)
	wide.Domains = make([]Domain, Domains+3)
	l.Add("ns/wide", start.Add(time.Hour), wide)
	if got := l.Of("ns/wide")[0]; len(got.Domains) != Domains || got.Untried != 3 {
		t.Errorf("%d domains and %d more, want %d and 3", len(got.Domains), got.Untried, Domains)
	}
}

// TestList: the list shows what the log has at the time of the request.
func TestList(t *testing.T) {
	l := New()
	list := NewList(l)
	l.Add("ns/a", start, placement("ns/a", Unplaced))
	out, err := json.Marshal(list)
	must.Succeed(t, err)
	var read struct {
		Kind  string
		Items []Decision
	}
	if err := json.Unmarshal(out, &read); err != nil || read.Kind != "DecisionList" || len(read.Items) != 1 || read.Items[0].Result != Unplaced {
		t.Errorf("%v: %s", err, out)
	}
}

// BenchmarkAdd measures the cost in each cycle of a gang.
func BenchmarkAdd(b *testing.B) {
	l := New()
	d := placement("ns/a", Unplaced)
	for i := range b.N {
		l.Add(fmt.Sprint(i%Groups), start, d)
	}
}
