package whatif

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// mode is a kind of transaction: pods of these kinds are added.
type mode struct {
	coupled bool
	kinds   []string
	// stand are the kinds of pods that are there already.
	stand []string
	// expected: the transaction is given the pods that may be added.
	expected bool
}

var modes = map[string]mode{
	"pods that care about their node only": {kinds: independent, stand: interdependent},
	"pods that care about each other":      {coupled: true, kinds: interdependent, stand: interdependent},
	"these in copies":                      {kinds: []string{"apart", "zones-apart", "near", "rather", "spread", "gpu", "plain"}, stand: interdependent},
	"these where none of them stands":      {kinds: []string{"apart", "zones-apart", "spread", "single", "gpu", "plain"}, stand: independent, expected: true},
	"hosts apart":                          {kinds: []string{"gpu-apart", "gpu", "plain"}, stand: independent, expected: true},
	"claims of one pod":                    {kinds: []string{"single", "plain"}, stand: independent, expected: true},
}

// expect names the pods that may be added.
func (m mode) expect(t *testing.T, tx *Transaction) {
	t.Helper()
	for i, kind := range m.kinds {
		if m.expected {
			tx.ExpectPod(idle.PodInfo(t, pod(kind, 900+i)))
		}
	}
}

// standing returns pods of some kinds that are there already, wherever they are.
func standing(kinds ...string) []*v1.Pod {
	var pods []*v1.Pod
	for i, kind := range kinds {
		if kind != "single" {
			pods = append(pods, sample.Bound(pod(kind, 100+i), fmt.Sprint("n", i%4)))
		}
	}
	return pods
}

// hypothetical is a pod that a transaction added.
type hypothetical struct {
	pod  *v1.Pod
	node string
}

func (h hypothetical) String() string { return h.pod.Name + " on " + h.node }

// TestDiscardLeavesNoTrace adds pods of all kinds, on whatever node, goes back to
// marks in between, and gives up.
func TestDiscardLeavesNoTrace(t *testing.T) {
	s := newStage(t)
	for sentence, mode := range modes {
		t.Run(sentence, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 2))
				s.set(standing(interdependent...)...)
				before := s.facts(t)
				tx, _ := s.begin(t, mode.coupled)
				walk(t, rng, tx, mode.kinds, nil)
				if !mode.coupled {
					s.mustBe(t, fmt.Sprintf("during a transaction on copies, seed %d", seed), before)
				}
				must.Succeed(t, tx.Discard(t.Context()))
				s.mustBe(t, fmt.Sprintf("after Discard, seed %d", seed), before)
			}
		})
	}
}

// TestFitsAsIfThePodsStoodThere compares what fits in a transaction with what
// fits where the same pods stand in fact.
func TestFitsAsIfThePodsStoodThere(t *testing.T) {
	s := newStage(t)
	for sentence, mode := range modes {
		t.Run(sentence, func(t *testing.T) {
			for seed := range uint64(40) {
				rng := rand.New(rand.NewPCG(seed, 4))
				s.set(standing(mode.stand...)...)
				tx, _ := s.begin(t, mode.coupled)
				mode.expect(t, tx)
				views := map[string]*View{}
				added := walk(t, rng, tx, mode.kinds, views)
				got := map[string][]string{}
				for _, kind := range mode.kinds {
					if v := views[kind]; v != nil && !mode.coupled {
						got[kind] = fits(t, tx, v)
					} else {
						got[kind] = fits(t, tx, view(t, tx, pod(kind, 999)))
					}
				}
				must.Succeed(t, tx.Discard(t.Context()))
				if diff := gocmp.Diff(s.inFact(t, mode, added), got); diff != "" {
					t.Fatalf("seed %d, with %v: nodes that fit (-in fact +in the transaction):\n%s", seed, added, diff)
				}
			}
		})
	}
}

// inFact returns on which nodes a pod of each kind fits where the added pods stand.
func (s *stage) inFact(t *testing.T, mode mode, added []hypothetical) map[string][]string {
	t.Helper()
	pods := standing(mode.stand...)
	for _, h := range added {
		pods = append(pods, sample.Bound(h.pod, h.node))
	}
	s.set(pods...)
	want := map[string][]string{}
	for _, kind := range mode.kinds {
		tx, _ := s.begin(t, false)
		want[kind] = fits(t, tx, view(t, tx, pod(kind, 999)))
	}
	return want
}

// walk adds pods and goes back to marks at random. It fills views, if asked to, at random
// moments, and returns what stands in the end.
func walk(t *testing.T, rng *rand.Rand, tx *Transaction, kinds []string, views map[string]*View) []hypothetical {
	t.Helper()
	var stands []hypothetical
	marks := []Mark{tx.Checkpoint()}
	for n := range 30 {
		kind := kinds[rng.IntN(len(kinds))]
		switch rng.IntN(6) {
		case 0:
			marks = append(marks, tx.Checkpoint())
		case 1:
			mark := marks[rng.IntN(len(marks))]
			if int(mark) > len(stands) {
				continue // it is of a time that was taken back
			}
			must.Succeed(t, tx.Rollback(t.Context(), mark))
			stands = stands[:mark]
		case 2:
			if views != nil && views[kind] == nil {
				views[kind] = view(t, tx, pod(kind, 999))
			}
		default:
			p, node := pod(kind, n), rng.IntN(tx.Len())
			if kind == "port" && len(tx.Node(node).GetUsedPorts()) > 0 {
				continue // no filter would let it; that two pods have a port is more than a NodeInfo can know
			}
			version := tx.Version(node)
			must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, p), node))
			if p.Spec.NodeName != "" {
				t.Fatalf("the pod itself was put on %s", p.Spec.NodeName)
			}
			if tx.Version(node) == version {
				t.Fatal("the version of the node stayed the same")
			}
			stands = append(stands, hypothetical{p, tx.Node(node).Node().Name})
		}
	}
	return stands
}

// TestNodesAreAsTheyWouldBe compares nodes in a transaction with nodes on which
// the same pods stand.
func TestNodesAreAsTheyWouldBe(t *testing.T) {
	s := newStage(t)
	for sentence, mode := range modes {
		t.Run(sentence, func(t *testing.T) {
			s.set(standing(mode.stand...)...)
			tx, at := s.begin(t, mode.coupled)
			added := walk(t, rand.New(rand.NewPCG(9, 9)), tx, mode.kinds, nil)
			got := map[string]nodeFacts{}
			for name, i := range at {
				got[name] = comparable(factsOf(tx.Node(i)))
				if found, ok := tx.Index(name); !ok || found != i {
					t.Errorf("the index of %s is %d %v, want %d", name, found, ok, i)
				}
			}
			if _, ok := tx.Index("nowhere"); ok {
				t.Error("there is a node that does not exist")
			}
			must.Succeed(t, tx.Discard(t.Context()))
			mode.kinds = nil // no pod is asked about
			s.inFact(t, mode, added)
			want := map[string]nodeFacts{}
			for name, facts := range s.facts(t).Nodes {
				want[name] = comparable(facts)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("nodes (-in fact +in the transaction):\n%s", diff)
			}
		})
	}
}

// comparable drops from facts what depends on the order of events.
func comparable(f nodeFacts) nodeFacts {
	f.Generation = 0
	f.Pods, f.Affinity, f.AntiAffinity, f.WideAntiAffinity = byName(f.Pods), byName(f.Affinity), byName(f.AntiAffinity), byName(f.WideAntiAffinity)
	return f
}

func TestRollbackTakesBackTheLastFirst(t *testing.T) {
	s := newStage(t)
	for sentence, mode := range modes {
		t.Run(sentence, func(t *testing.T) {
			s.set()
			tx, at := s.begin(t, mode.coupled)
			add := func(n int) {
				must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, pod("gpu", n)), at["n0"]))
			}
			free := func() bool {
				for _, name := range fits(t, tx, view(t, tx, pod("gpu", 9))) {
					if name == "n0" {
						return true
					}
				}
				return false
			}
			empty := tx.Checkpoint()
			add(0)
			half := tx.Checkpoint()
			add(1)
			for _, step := range []struct {
				sentence string
				to       Mark
				free     bool
			}{
				{"the node is full", tx.Checkpoint(), false},
				{"one is taken back", half, true},
				{"nothing happens twice", half, true},
				{"a later mark is no way forward", tx.Checkpoint() + 1, true},
				{"all are taken back", empty, true},
			} {
				must.Succeed(t, tx.Rollback(t.Context(), step.to))
				if free() != step.free {
					t.Errorf("%s: free %v, want %v", step.sentence, free(), step.free)
				}
			}
			must.Succeed(t, tx.Discard(t.Context()))
		})
	}
}

// nominate puts a pod into the queue that is nominated to a node.
func (s *stage) nominate(t *testing.T, p *v1.Pod, priority int32, node string) {
	t.Helper()
	p.Spec.Priority, p.Status.NominatedNodeName = &priority, node
	must.Succeed(t, s.known.Add(p))
	s.queue.Add(t.Context(), p)
}

// TestFitsBesideNominatedPods: pods that are nominated count as kube-scheduler counts
// them, except for the transaction's own.
func TestFitsBesideNominatedPods(t *testing.T) {
	s := newStage(t)
	s.set(standing(interdependent...)...)
	nominated := map[types.UID]bool{}
	for i, kind := range interdependent {
		p := pod(kind, 200+i)
		s.nominate(t, p, int32(i%3), fmt.Sprint("n", i%6))
		nominated[p.UID] = true
	}
	tx, _ := s.begin(t, false)
	differs := false
	for _, kind := range interdependent {
		for priority := range int32(3) {
			p := pod(kind, 999)
			p.Spec.Priority = &priority
			v := view(t, tx, p)
			for i := 0; v != nil && i < tx.Len(); i++ {
				name := tx.Node(i).Node().Name
				want := s.fw.RunFilterPluginsWithNominatedPods(t.Context(), v.State, p, tx.Node(i))
				if got := tx.Fits(t.Context(), v, i); got.Code() != want.Code() || got.Message() != want.Message() {
					t.Errorf("%s of priority %d on %s: %v, kube-scheduler says %v", kind, priority, name, got, want)
				}
				differs = differs || want.Code() != s.fw.RunFilterPlugins(t.Context(), v.State, p, tx.Node(i)).Code()
			}
		}
	}
	if !differs {
		t.Error("no nominated pod ever stood in the way")
	}
	for uid := range nominated {
		tx.MarkOwn(uid)
	}
	for _, kind := range interdependent {
		p := pod(kind, 999)
		v := view(t, tx, p)
		for i := 0; v != nil && i < tx.Len(); i++ {
			want := s.fw.RunFilterPlugins(t.Context(), v.State, p, tx.Node(i))
			if got := tx.Fits(t.Context(), v, i); got.Code() != want.Code() {
				t.Errorf("%s beside the transaction's own on %s: %v, want %v", kind, tx.Node(i).Node().Name, got, want)
			}
		}
	}
}

// foreign is a snapshot that is not kube-scheduler's.
type foreign struct{ framework.Framework }

type lister struct {
	fwk.SharedLister
	err error
}

func (f lister) NodeInfos() fwk.NodeInfoLister { return nodeLister{err: f.err} }

type nodeLister struct {
	fwk.NodeInfoLister
	err error
}

func (l nodeLister) List() ([]fwk.NodeInfo, error) { return nil, l.err }

func (f foreign) SnapshotSharedLister() fwk.SharedLister { return lister{} }

type broken struct{ framework.Framework }

var errBroken = errors.New("no nodes")

func (broken) SnapshotSharedLister() fwk.SharedLister { return lister{err: errBroken} }

func TestBegin(t *testing.T) {
	for sentence, c := range map[string]struct {
		fw      framework.Framework
		coupled bool
		fails   bool
	}{
		"copies need no snapshot of kube-scheduler's": {foreign{}, false, false},
		"to assume pods in it, it has to be":          {foreign{}, true, true},
		"nodes that cannot be listed are an error":    {broken{}, false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if _, err := Begin(c.fw, Hooks{}, c.coupled); (err != nil) != c.fails {
				t.Errorf("Begin: %v, want an error: %v", err, c.fails)
			}
		})
	}
}
