package reservationstate

import (
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

func asked(cpu, gpu int64) hold.Taken {
	taken := hold.Taken{Pods: 1, Request: resource.Vector{}}
	if cpu > 0 {
		taken.Request[v1.ResourceCPU] = cpu
	}
	if gpu > 0 {
		taken.Request["gpu"] = gpu
	}
	return taken
}

func TestRank(t *testing.T) {
	slot := func(cpu, gpu int64) Slot { return Slot{Left: asked(cpu, gpu), SingleUse: true} }
	taken, restricted := slot(4, 0), slot(4, 0)
	meant := slot(2, 0)
	meant.ForMigration = true
	taken.Taken, restricted.Restricted = true, []v1.ResourceName{v1.ResourceCPU}
	for sentence, c := range map[string]struct {
		need  hold.Taken
		slots []Slot
		want  []int
	}{
		"the tightest that covers all":                     {asked(4, 0), []Slot{slot(8, 0), slot(4, 0), slot(6, 0)}, []int{1, 2, 0}},
		"what covers more goes before what leaves less":    {asked(4, 0), []Slot{slot(2, 0), slot(16, 0)}, []int{1, 0}},
		"each resource counts alike":                       {asked(4, 2), []Slot{slot(4, 0), slot(4, 1), slot(2, 2)}, []int{1, 2, 0}},
		"as they come where they are alike":                {asked(4, 0), []Slot{slot(4, 0), slot(4, 0)}, []int{0, 1}},
		"what is meant for it goes first":                  {asked(4, 0), []Slot{slot(4, 0), meant}, []int{1, 0}},
		"what somebody has is no choice":                   {asked(4, 0), []Slot{taken, slot(2, 0)}, []int{1}},
		"restricted gives no more than is left":            {asked(5, 0), []Slot{restricted}, nil},
		"and all of it":                                    {asked(4, 0), []Slot{restricted}, []int{0}},
		"it does not restrict what is not reserved":        {asked(4, 8), []Slot{restricted}, []int{0}},
		"what has nothing of what is asked for is no help": {asked(0, 1), []Slot{slot(4, 0)}, nil},
		"a pod that asks for nothing has its place":        {asked(0, 0), []Slot{slot(4, 0)}, []int{0}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := Rank(c.need, c.slots); !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// TestSuits: it is from 0 to 1, 1 only if a slot is exactly what is asked for, and never better for a slot that covers
// less and leaves more.
func TestSuits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		need := asked(1+random.Int64N(8), random.Int64N(8))
		slot := Slot{Left: asked(1+random.Int64N(8), random.Int64N(8))}
		got := Suits(need, &slot)
		if got < 0 || got > 1 {
			t.Fatalf("%v for %v in %v", got, need.Request, slot.Left.Request)
		}
		if same := need.Request[v1.ResourceCPU] == slot.Left.Request[v1.ResourceCPU] && need.Request["gpu"] == slot.Left.Request["gpu"]; same != (got == 1) {
			t.Fatalf("%v for %v in %v", got, need.Request, slot.Left.Request)
		}
		larger := Slot{Left: asked(slot.Left.Request[v1.ResourceCPU]+1, slot.Left.Request["gpu"])}
		if need.Request[v1.ResourceCPU] <= slot.Left.Request[v1.ResourceCPU] && Suits(need, &larger) >= got && got > 0 {
			t.Fatalf("%v for %v in %v, and no less in %v", got, need.Request, slot.Left.Request, larger.Left.Request)
		}
	}
}
