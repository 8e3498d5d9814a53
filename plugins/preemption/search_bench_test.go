package preemption

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// known is a profile that knows its gangs, with those that start together with them.
type known map[gang.Key][]gang.Footprint

func (k known) Running(key gang.Key) []gang.Footprint { return slices.Clone(k[key]) }
func (k known) Hoards(int32) []string                 { return nil }
func (k known) Yield(context.Context, []string)       {}
func (k known) Placing(string) bool                   { return true }
func (k known) Synced() bool                          { return true }
func (k known) Changed()                              {}
func (k known) Explain([]gang.Key)                    {}
func (k known) Wants(*v1.Pod) (gang.Want, bool)       { return gang.Want{}, false }
func (k known) QueueOf(gang.Key) string               { return "" }

// full is a cluster of nodes of 8 GPUs, in racks, full of gangs of 8 pods of low priority, each on 8
// nodes beside each other.
func full(nodes, racks, min int) ([]*v1.Node, []*v1.Pod, known) {
	var all []*v1.Node
	var pods []*v1.Pod
	gangs := known{}
	for i := range nodes {
		all = append(all, node(fmt.Sprintf("n%04d", i), 8, fmt.Sprint("r", i*racks/nodes)))
	}
	for g := range nodes {
		name := fmt.Sprintf("g%04d", g)
		f := gang.Footprint{Key: gang.Key{Namespace: "default", Name: name}, Min: min}
		for i := range 8 {
			on := all[(g/8*8+i)%nodes].Name
			pod := member(name, i, min, 10, 1, on)
			pods = append(pods, pod)
			f.Running = append(f.Running, gang.Placed{Pod: pod, Node: on})
		}
		gangs[f.Key] = []gang.Footprint{f}
	}
	return all, pods, gangs
}

// BenchmarkSearch is the time of one search: 40,000 pods on 5,000 nodes, and a preemptor of 64 that needs
// 64 GPUs. Where a topology is required it must grow with the domain, not with the cluster.
func BenchmarkSearch(b *testing.B) {
	for _, c := range []struct {
		name         string
		nodes, racks int
		min          int
		spec         gang.Spec
	}{
		{"surplus/nodes=5000", 5000, 50, 4, gang.Spec{}},
		{"surplus/nodes=1000", 1000, 10, 4, gang.Spec{}},
		{"whole/nodes=5000", 5000, 50, 8, gang.Spec{}},
		{"rack=100/nodes=5000", 5000, 50, 8, gang.Spec{RequiredTopology: rack}},
		{"rack=100/nodes=1000", 1000, 10, 8, gang.Spec{RequiredTopology: rack}},
		{"hopeless/nodes=5000", 5000, 50, 8, gang.Spec{RequiredTopology: v1.LabelHostname}},
	} {
		b.Run(c.name, func(b *testing.B) {
			nodes, pods, gangs := full(c.nodes, c.racks, c.min)
			s := newStage(b, nodes, pods)
			s.Roster.Register(profile, gangs)
			d := s.demand(b, c.spec, members("p", 64, 64, 100, 1)...)
			b.ReportAllocs()
			for b.Loop() {
				f, err := s.search(s.ctx, d)
				if err != nil {
					b.Fatal(err)
				}
				want := 64
				if c.spec.RequiredTopology == v1.LabelHostname {
					want = 0
				}
				got := 0
				if f != nil {
					got = len(f.victims)
				}
				if got != want {
					b.Fatalf("%d victims, want %d", got, want)
				}
			}
		})
	}
}
