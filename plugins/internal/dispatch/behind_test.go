package dispatch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestBehindAtOneCeilingOnly: what is behind others for one resource, and for another is kept by what runs, is not helped by room,
// whichever ceiling is looked at first, and whichever queue has it.
func TestBehindAtOneCeilingOnly(t *testing.T) {
	const gpu = v1.ResourceName("nvidia.com/gpu")
	cpus := func(n int64) Vector { return Vector{v1.ResourceCPU: n} }
	both := Vector{v1.ResourceCPU: 10, gpu: 10}
	for _, c := range []struct {
		where       string
		child, top  Vector
		ahead, runs Vector
		queue       string
		of          v1.ResourceName
	}{
		{"one queue, behind for CPU", both, nil, cpus(6), gpus(5), "a", gpu},
		{"one queue, behind for GPU", both, nil, gpus(6), cpus(5), "a", v1.ResourceCPU},
		{"both above it, behind for CPU", nil, both, cpus(6), gpus(5), "top", gpu},
		{"behind in its own queue", cpus(10), gpus(10), cpus(6), gpus(5), "top", gpu},
		{"behind in the one above it", gpus(10), cpus(10), cpus(6), gpus(5), "a", gpu},
	} {
		at := Moment{Now: start, Read: true, Waits: func(string) bool { return true }}
		b := newBook(tier)
		b.SetLimits(Limits{Window: 10})
		b.SetQueues(Queue{Name: "a", Parent: "top", Weight: 1, Capability: c.child}, Queue{Name: "top", Weight: 1, Capability: c.top})
		b.SetTotal(Vector{v1.ResourceCPU: 20, gpu: 20})
		var goal string
		for i, need := range []Vector{c.ahead, {v1.ResourceCPU: 6, gpu: 6}} {
			j := of("a", i+1, need)
			j.Pod, j.Pods, j.Gang = j.Name, []string{j.Name}, true
			b.Count(j.Name, Usage{Queue: "a", Job: j.Name, Amount: need})
			b.Come(j, at)
			b.Fail(j.Name, Failure{Job: j.Name, Gang: true}, at)
			goal = j.Name
		}
		if bound, over := b.Beyond(goal); !over || !bound.behindOthers() {
			t.Fatalf("%s: before anything runs it is beyond %+v, want to be behind another", c.where, bound)
		}
		b.Count("runs", Usage{Queue: "a", Amount: c.runs, Runs: true})
		if bound, over := b.Beyond(goal); !over || bound.Queue != c.queue || bound.Resource != c.of || bound.behindOthers() {
			t.Errorf("%s: it is beyond %+v, want %s of queue %s", c.where, bound, c.of, c.queue)
		}
		reason, words := b.Barred(goal)
		if RoomHelps(&v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: string(reason), Message: words}) {
			t.Errorf("%s: 5 of 10 are used, and it asks for 6: room does not help it, and it is told %s: %q", c.where, reason, words)
		}
	}
}
