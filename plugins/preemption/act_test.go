package preemption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// server is an API server in trouble: its answers to calls about pods, before the fake one gets them.
type server struct {
	deletes func(name string, options metav1.DeleteOptions) error
	patches func(name string) error
}

func (s server) stand(client *fake.Clientset) {
	client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		call := a.(clienttesting.DeleteAction)
		if s.deletes != nil {
			if err := s.deletes(call.GetName(), call.GetDeleteOptions()); err != nil {
				return true, nil, err
			}
		}
		return len(call.GetDeleteOptions().DryRun) > 0, nil, nil // the fake one knows no dry run
	})
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if s.patches != nil {
			if err := s.patches(a.(clienttesting.PatchAction).GetName()); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
}

var errTrouble = apierrors.NewInternalError(errors.New("no leader"))

// TestActInTrouble makes room for a gang of 2 on a node of 4 with the pods v-0 to v-3 of minimum 1, while the
// API server is in trouble.
func TestActInTrouble(t *testing.T) {
	dry := func(options metav1.DeleteOptions) bool { return len(options.DryRun) > 0 }
	for sentence, c := range map[string]struct {
		server server
		gone   int
		held   int
		again  string // the victim that is chosen next, while nothing has changed for the scheduler
	}{
		"all is well": {gone: 2, held: 2},
		"nobody is evicted where it is not known whether all may be, and the same are chosen again": {
			server{deletes: func(name string, o metav1.DeleteOptions) error {
				if dry(o) && name == "v-3" {
					return errTrouble
				}
				return nil
			}},
			0, 0, "v-2 v-3",
		},
		"who may not be evicted is left alone": {
			server{deletes: func(name string, _ metav1.DeleteOptions) error {
				if name == "v-3" {
					return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("policy"))
				}
				return nil
			}},
			0, 0, "v-1 v-2",
		},
		"nobody is evicted before all members are nominated": {
			server{patches: func(name string) error {
				if name == "p-1" {
					return errTrouble
				}
				return nil
			}},
			0, 0, "v-2 v-3",
		},
		"what was freed stays held where an eviction fails": {
			server{deletes: func(name string, o metav1.DeleteOptions) error {
				if !dry(o) && name == "v-3" {
					return errTrouble
				}
				return nil
			}},
			1, 2, "",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			victims, preemptor := members("v", 4, 1, 10, 1, "n0"), members("p", 2, 2, 100, 1)
			objects := objectsOf(victims, preemptor)
			s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objects...)
			client := s.fw.ClientSet().(*fake.Clientset)
			c.server.stand(client)
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			carried, victimsBefore := counter(t, preemptions.WithLabelValues("preempt")), counter(t, victimsTotal)
			s.carryOutNow(t, d)
			if n := counter(t, preemptions.WithLabelValues("preempt")) - carried; int(n) != min(c.gone, 1) {
				t.Errorf("%v preemptions are counted, want %d", n, min(c.gone, 1))
			}
			if n := counter(t, victimsTotal) - victimsBefore; int(n) != c.gone {
				t.Errorf("%v victims are counted, want %d", n, c.gone)
			}
			left, err := client.CoreV1().Pods("default").List(s.ctx, metav1.ListOptions{})
			must.Succeed(t, err)
			if gone := len(objects) - len(left.Items); gone != c.gone {
				t.Errorf("%d pods are gone, want %d", gone, c.gone)
			}
			if held := len(s.Holds.NominationsOf(s.holder(d))); held != c.held {
				t.Errorf("%d places are held, want %d", held, c.held)
			}
			if c.again != "" {
				if got := s.victimsOf(t, d); got != c.again {
					t.Errorf("chosen next: %q, want %q", got, c.again)
				}
			}
		})
	}
}

func counter(t *testing.T, metric metrics.CounterMetric) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(metric)
	must.Succeed(t, err)
	return value
}

// carryOutNow chooses victims, and does all that follows before it returns.
func (s *stage) carryOutNow(t *testing.T, d *demand) {
	t.Helper()
	s.execution(d, s.decide(t, d)).carryOut(s.ctx)
}

// decide chooses victims, and holds the places that were found.
func (s *stage) decide(t *testing.T, d *demand) *found {
	t.Helper()
	f, err := s.search(s.ctx, d)
	if err != nil || f == nil {
		t.Fatalf("found %v, %v", f, err)
	}
	s.promise(d, f)
	return f
}

// promise holds the places that were found, as a decision does that is acted upon.
func (s *stage) promise(d *demand, f *found) {
	s.execution(d, f).makePreemption()
	for uid, on := range f.plan.Nodes {
		s.Holds.Nominate(hold.Hold{For: uid, Holder: s.holder(d), Node: on, Priority: d.gang.Priority, Request: f.plan.Demand[uid].Request, Claim: f.preemption.Claim})
	}
	s.Underway.AddVictims(s.Gangs, f.preemption, f.victims)
}

// TestVictimsWhoseEndNobodySees: a preemptor awaits its other victims only, those that were not gone before they were
// chosen and whose node exists: its gang is planned again when these have ended.
func TestVictimsWhoseEndNobodySees(t *testing.T) {
	preemptor := members("p", 2, 2, 100, 1)
	victims := slices.Concat(members("v", 1, 0, 10, 1, "n0"), members("w", 1, 0, 10, 1, "gone"), members("x", 1, 0, 10, 1, "n0"))
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims[:1], preemptor[0], preemptor[1], victims[0], victims[1])
	d := s.demand(t, gangspec.Spec{}, preemptor...)
	s.Underway.AddVictims(s.Gangs, s.decision(d), victims)
	if message := s.mustWait(d); message != "" {
		t.Errorf("it waits for room that is not held for it: %q", message)
	}
	s.Holds.Nominate(hold.Hold{For: preemptor[0].UID, Holder: s.holder(d), Node: "n0"})
	if message := s.mustWait(d); message != msgWaiting {
		t.Errorf("it does not wait: %q", message)
	}
	if got := s.Underway.VictimsOf(s.holder(d)); !slices.Equal(got, []types.UID{victims[0].UID}) {
		t.Errorf("have not ended: %v, want one", got)
	}
}

// TestEvictionsAreLogged: at the default verbosity there is one line for each gang that loses pods, and for each single
// pod.
func TestEvictionsAreLogged(t *testing.T) {
	gangs, single := slices.Concat(members("v", 4, 4, 10, 1, "n0"), members("w", 4, 1, 10, 1, "n0")), members("s", 1, 0, 5, 1, "n0")
	preemptor := members("p", 1, 1, 100, 8)
	victims := append(gangs, single...)
	objects := objectsOf(preemptor[:1], victims)
	s := newStage(t, []*v1.Node{node("n0", 9, "r0")}, victims, objects...)
	server{}.stand(s.fw.ClientSet().(*fake.Clientset))
	d := s.demand(t, gangspec.Spec{}, preemptor...)
	f := s.decide(t, d)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0), ktesting.BufferLogs(true)))
	s.execution(d, f).carryOut(klog.NewContext(s.ctx, logger))
	var lines []string
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogInfo && strings.HasPrefix(entry.Message, "Evicted") {
			lines = append(lines, fmt.Sprintln(entry.WithKVList, entry.ParameterKVList))
		}
	}
	text := strings.Join(lines, "")
	for _, want := range []string{"victim gang default/v pods 4 preemptor gang default/p (priority 100)", "victim gang default/w pods 3", "victim pod default/s-0 pods 1", "all 4 pods, minimum 4, preempted"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line has %q:\n%s", want, text)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines, want 3:\n%s", len(lines), text)
	}
}

// TestCallsPerVictim: a victim takes two calls to the API server, a mark and the deletion; dry runs are made for one
// pod of each gang or controller.
func TestCallsPerVictim(t *testing.T) {
	const n = 64
	for sentence, c := range map[string]struct {
		min  int
		want map[string]int
	}{
		"a gang goes whole":        {n, map[string]int{"dry run": 1, "mark": n, "delete": n}},
		"a gang loses its surplus": {1, map[string]int{"dry run": 1, "mark": n - 1, "delete": n - 1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			victims := members("v", n, c.min, 10, 1, "n0")
			preemptor := members("p", 1, 1, 100, c.want["delete"])
			objects := objectsOf(preemptor[:1], victims)
			s := newStage(t, []*v1.Node{node("n0", n, "r0")}, victims, objects...)
			s.change(t, victims, c.min)
			client := s.fw.ClientSet().(*fake.Clientset)
			client.ClearActions()
			s.carryOutNow(t, s.demand(t, gangspec.Spec{}, preemptor...))
			calls := map[string]int{}
			for _, action := range client.Actions() {
				switch call := action.(type) {
				case clienttesting.PatchAction:
					calls["mark"]++
				case clienttesting.DeleteAction:
					if len(call.GetDeleteOptions().DryRun) > 0 {
						calls["dry run"]++
					} else {
						calls["delete"]++
					}
				case clienttesting.GetAction:
					calls["get"]++
				}
			}
			if diff := cmp.Diff(c.want, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
