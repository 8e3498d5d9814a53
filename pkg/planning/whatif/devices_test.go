package whatif

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// deviceStage returns a stage with nodes n0 to n5, each of which has so many devices.
func deviceStage(t testing.TB, devices []int, objects ...runtime.Object) *stage {
	t.Helper()
	objects = append(objects, dra.Class())
	for i, count := range devices {
		objects = append(objects, dra.Slice(fmt.Sprint("n", i), count))
	}
	return newStage(t, objects...)
}

// where lists the nodes on which a pod fits, of those that have devices.
func where(t testing.TB, tx *Transaction, pod *v1.Pod, nodes int) string {
	t.Helper()
	v, status := tx.View(t.Context(), pod)
	if status.IsRejected() {
		return status.Message()
	}
	if !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	found := ""
	for i := range nodes {
		at, _ := tx.Index(fmt.Sprint("n", i))
		switch status := tx.Fits(t.Context(), v, at); {
		case status.IsSuccess():
			found += fmt.Sprint(i)
		case !status.IsRejected():
			t.Fatal(status.AsError())
		}
	}
	return found
}

// wantLeft checks how many devices the nodes have left.
func wantLeft(t testing.TB, tx *Transaction, want ...int) {
	t.Helper()
	overlay, err := tx.DeviceOverlay()
	must.Succeed(t, err)
	for i := range want {
		if left, bounded, err := overlay.Left(dra.Driver, fmt.Sprint("n", i)); err != nil || !bounded || left != want[i] {
			t.Errorf("node n%d has %d devices left, bounded %t, %v; want %d", i, left, bounded, err, want[i])
		}
	}
}

func wantWhere(t testing.TB, tx *Transaction, pod *v1.Pod, nodes int, want string) {
	t.Helper()
	if got := where(t, tx, pod, nodes); got != want {
		t.Errorf("pod %s fits on nodes %q, want %q", pod.Name, got, want)
	}
}

func addTo(t testing.TB, tx *Transaction, pod *v1.Pod, node string) {
	t.Helper()
	at, _ := tx.Index(node)
	must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, pod), at))
}

// wantNothingInFlight checks kube-scheduler's own tracker.
func wantNothingInFlight(t testing.TB, s *stage, allocated int, claims ...string) {
	t.Helper()
	real := s.fw.SharedDRAManager().ResourceClaims()
	for _, name := range claims {
		if real.GetPendingAllocation(types.UID("claim-"+name)) != nil {
			t.Errorf("claim %s is being allocated after the transaction", name)
		}
	}
	if devices, err := real.ListAllAllocatedDevices(); err != nil || len(devices) != allocated {
		t.Errorf("%d devices are allocated after the transaction, %v; want %d", len(devices), err, allocated)
	}
}

func TestDevicesOfClaims(t *testing.T) {
	for _, interdependent := range []bool{false, true} {
		t.Run(fmt.Sprint("Interdependent=", interdependent), func(t *testing.T) {
			s := deviceStage(t, []int{2, 1}, dra.Claim("a", 1), dra.Claim("b", 1), dra.Claim("c", 1), dra.Claim("two", 2))
			s.set()
			tx, _ := s.begin(t, interdependent)
			wantLeft(t, tx, 2, 1)
			wantWhere(t, tx, dra.Pod("a", "a"), 2, "01")
			wantWhere(t, tx, dra.Pod("both", "a", "b"), 2, "0")
			wantWhere(t, tx, dra.Pod("two", "two"), 2, "0")
			addTo(t, tx, dra.Pod("a", "a"), "n0")
			mark := tx.Checkpoint()
			wantWhere(t, tx, dra.Pod("two", "two"), 2, "")
			wantWhere(t, tx, dra.Pod("b", "b"), 2, "01")
			addTo(t, tx, dra.Pod("b", "b"), "n0")
			wantLeft(t, tx, 0, 1)
			wantWhere(t, tx, dra.Pod("c", "c"), 2, "1")
			wantWhere(t, tx, dra.Pod("other-of-b", "b"), 2, "0") // it shares the claim, which is tied to its node
			must.Succeed(t, tx.Rollback(t.Context(), mark))
			wantLeft(t, tx, 1, 1)
			wantWhere(t, tx, dra.Pod("c", "c"), 2, "01")
			must.Succeed(t, tx.Discard(t.Context()))
			wantNothingInFlight(t, s, 0, "a", "b", "c", "two")
		})
	}
}

// TestDevicesOfAViewThatLasts: the framework does not update a view that was made before others came and went.
func TestDevicesOfAViewThatLasts(t *testing.T) {
	s := deviceStage(t, []int{2}, dra.Claim("a", 1), dra.Claim("b", 2))
	s.set()
	tx, at := s.begin(t, false)
	v, status := tx.View(t.Context(), dra.Pod("b", "b"))
	if !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	mark := tx.Checkpoint()
	addTo(t, tx, dra.Pod("a", "a"), "n0")
	if status := tx.Fits(t.Context(), v, at["n0"]); !status.IsRejected() || v.Settled(status) {
		t.Errorf("with one of two devices taken: %v, settled %t; want a rejection that others may end", status, v.Settled(status))
	}
	must.Succeed(t, tx.Rollback(t.Context(), mark))
	if status := tx.Fits(t.Context(), v, at["n0"]); !status.IsSuccess() {
		t.Errorf("with both devices free again: %v", status)
	}
}

func TestDevicesThatLeaveWithPods(t *testing.T) {
	s := deviceStage(t, []int{2, 2}, dra.Claim("new", 2),
		dra.Held(dra.Claim("own", 2), "n0", 0, "runs"),
		dra.Held(dra.Claim("shared", 1), "n1", 0, "first", "second"))
	runs, first, second := dra.Pod("runs", "own"), dra.Pod("first", "shared"), dra.Pod("second", "shared")
	runs.Spec.NodeName, first.Spec.NodeName, second.Spec.NodeName = "n0", "n1", "n1"
	s.set(runs, first, second)
	tx, at := s.begin(t, false)
	newcomer := dra.Pod("new", "new")
	wantWhere(t, tx, newcomer, 2, "")
	wantLeft(t, tx, 0, 1)
	start := tx.Checkpoint()
	remove := func(pod *v1.Pod) {
		t.Helper()
		must.Succeed(t, tx.Remove(t.Context(), idle.PodInfo(t, pod), at[pod.Spec.NodeName]))
	}
	remove(runs)
	wantWhere(t, tx, newcomer, 2, "0")
	wantLeft(t, tx, 2, 1)
	gone := tx.Checkpoint()
	addTo(t, tx, newcomer, "n0")
	wantLeft(t, tx, 0, 1)
	must.Succeed(t, tx.Rollback(t.Context(), gone))
	remove(first)
	wantWhere(t, tx, newcomer, 2, "0") // the other still has the claim
	wantLeft(t, tx, 2, 1)
	remove(second)
	wantWhere(t, tx, newcomer, 2, "01")
	wantLeft(t, tx, 2, 2)
	must.Succeed(t, tx.Restore(t.Context(), idle.PodInfo(t, runs), at["n0"]))
	wantWhere(t, tx, newcomer, 2, "1")
	wantLeft(t, tx, 0, 2)
	must.Succeed(t, tx.Rollback(t.Context(), start))
	wantWhere(t, tx, newcomer, 2, "")
	wantLeft(t, tx, 0, 1)
	must.Succeed(t, tx.Discard(t.Context()))
	wantNothingInFlight(t, s, 3, "new")
}

// TestDevicesOfExtendedResources: extended resources that a DeviceClass backs are devices where the node does
// not have them of a device plugin.
func TestDevicesOfExtendedResources(t *testing.T) {
	s := deviceStage(t, []int{2, 1})
	s.nodes[1].Status.Allocatable[dra.Backed] = s.nodes[1].Status.Allocatable[gpu]
	s.set()
	asks := func(name, count string) *v1.Pod {
		return st.MakePod().Namespace("ns").Name(name).UID(name).Req(amounts{dra.Backed: count}).Obj()
	}
	tx, _ := s.begin(t, false)
	wantWhere(t, tx, asks("two", "2"), 3, "01")
	addTo(t, tx, asks("a", "1"), "n0")
	wantWhere(t, tx, asks("two", "2"), 3, "1")
	wantWhere(t, tx, asks("b", "1"), 3, "01")
	addTo(t, tx, asks("b", "1"), "n0")
	wantWhere(t, tx, asks("c", "1"), 3, "1")
	must.Succeed(t, tx.Discard(t.Context()))
	wantNothingInFlight(t, s, 0)
}

// TestDevicesAgainstCounts: whatever comes, goes and is rolled back, a pod fits where enough devices are left.
func TestDevicesAgainstCounts(t *testing.T) {
	const nodes, each, running, waiting = 3, 4, 4, 6
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var objects []runtime.Object
		free := make([]int, nodes)
		for i := range free {
			free[i] = each
		}
		size := map[string]int{}
		var there, pending []*v1.Pod
		for i := range running {
			name, node, count := fmt.Sprint("r", i), i%nodes, 1+r.IntN(2)
			objects = append(objects, dra.Held(dra.Claim(name, count), fmt.Sprint("n", node), each-free[node], name))
			p := dra.Pod(name, name)
			p.Spec.NodeName = fmt.Sprint("n", node)
			there, size[name] = append(there, p), count
			free[node] -= count
		}
		for i := range waiting {
			name := fmt.Sprint("w", i)
			size[name] = 1 + r.IntN(3)
			objects = append(objects, dra.Claim(name, size[name]))
			pending = append(pending, dra.Pod(name, name))
		}
		s := deviceStage(t, []int{each, each, each}, objects...)
		s.set(there...)
		tx, at := s.begin(t, false)
		type point struct {
			mark          Mark
			free          []int
			there, placed map[string]int
		}
		copyOf := func(m map[string]int) map[string]int {
			c := map[string]int{}
			for k, v := range m {
				c[k] = v
			}
			return c
		}
		gone, placed := map[string]int{}, map[string]int{}
		var points []point
		for range 25 {
			p, w := there[r.IntN(len(there))], pending[r.IntN(len(pending))]
			node := int(p.Spec.NodeName[1] - '0')
			_, left := gone[p.Name]
			_, stands := placed[w.Name]
			switch choice := r.IntN(5); {
			case choice == 0 && !left:
				must.Succeed(t, tx.Remove(t.Context(), idle.PodInfo(t, p), at[p.Spec.NodeName]))
				gone[p.Name] = node
				free[node] += size[p.Name]
			case choice == 1 && left && free[node] >= size[p.Name]:
				must.Succeed(t, tx.Restore(t.Context(), idle.PodInfo(t, p), at[p.Spec.NodeName]))
				delete(gone, p.Name)
				free[node] -= size[p.Name]
			case choice == 2:
				points = append(points, point{tx.Checkpoint(), append([]int(nil), free...), copyOf(gone), copyOf(placed)})
			case choice == 3 && len(points) > 0:
				last := points[len(points)-1]
				points = points[:len(points)-1]
				must.Succeed(t, tx.Rollback(t.Context(), last.mark))
				free, gone, placed = last.free, last.there, last.placed
			case !stands:
				want := ""
				for i := range nodes {
					if free[i] >= size[w.Name] {
						want += fmt.Sprint(i)
					}
				}
				wantWhere(t, tx, w, nodes, want)
				if t.Failed() {
					t.Fatalf("seed %d: free %v, gone %v, placed %v", seed, free, gone, placed)
				}
				if want != "" {
					on := int(want[r.IntN(len(want))] - '0')
					addTo(t, tx, w, fmt.Sprint("n", on))
					placed[w.Name] = on
					free[on] -= size[w.Name]
				}
			}
		}
		must.Succeed(t, tx.Discard(t.Context()))
	}
}
