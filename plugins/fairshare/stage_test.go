package fairshare

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
	configv1 "github.com/lockstep-sh/lockstep/apis/config/v1"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

func gpus(n int64) queueing.Vector { return queueing.Vector{gpu: n} }

// newDispatcher returns a Dispatcher with so many GPUs, a window, queues of weight 1 unless they set another, and
// nothing that runs by itself.
func newDispatcher(t testing.TB, total int64, window int, queues ...queueing.Queue) *Dispatcher {
	t.Helper()
	d := NewDispatcher(noGangs{}, ledger.New(), func(hold.Holder) int { return 0 }, make(chan struct{}), nil, watches.New())
	d.holds.OnChange(d.holdsChanged)
	d.clock = testingclock.NewFakeClock(time.Unix(1000, 0))
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	must.Succeed(t, namespaces.Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-a", Annotations: map[string]string{v1alpha1.QueueLabel: "a"}}}))
	d.namespaces = namespaceLister{corelisters.NewNamespaceLister(namespaces), namespaces}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	d.pods = podLister{corelisters.NewPodLister(store), store}
	d.served[profile] = true
	d.args = defaultArgs()
	d.book.Configure(queueing.Limits{Window: window}, policiesOf(d.args.Tiers))
	d.opened = true
	for _, q := range queues {
		q.Weight = max(q.Weight, 1)
		d.book.SetQueues(q)
	}
	if total > 0 {
		d.has(gpus(total))
	}
	return d
}

// has puts all that is there to be shared on one node.
func (d *Dispatcher) has(amount queueing.Vector) {
	list := amount.List()
	list[v1.ResourcePods] = *apiresource.NewQuantity(1<<40, apiresource.DecimalSI) // not asked for
	d.nodeSeen(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Status: v1.NodeStatus{Allocatable: list}})
}

// left returns how much is kept of pods, nodes and what is held, without what is nothing.
func (d *Dispatcher) left() map[string]int {
	left := map[string]int{}
	counter := reflect.ValueOf(d.usage).Elem()
	for _, field := range []string{"pods", "onNode", "ofClass", "all", "moving", "inPlace"} {
		if n := counter.FieldByName(field).Len(); n > 0 {
			left[field] = n
		}
	}
	return left
}

// defaultArgs returns the arguments of a configuration that sets none.
func defaultArgs() *config.FairShareArgs {
	given, args := &configv1.FairShareArgs{}, &config.FairShareArgs{}
	configv1.SetDefaults_FairShareArgs(given)
	if err := configv1.Convert_v1_FairShareArgs_To_config_FairShareArgs(given, args, nil); err != nil {
		panic(err)
	}
	return args
}

// namespaceLister lists the namespaces of a store.
type namespaceLister struct {
	corelisters.NamespaceLister
	store cache.Indexer
}

// unfit returns the scheduler's error for a pod that finds no place: none of three nodes takes it, for one kind of
// reason.
func unfit(code fwk.Code) error {
	err := &framework.FitError{NumAllNodes: 3, Diagnosis: framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}}
	err.Diagnosis.NodeToStatus.Set("a", fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "of no use"))
	err.Diagnosis.NodeToStatus.Set("b", fwk.NewStatus(code, "full"))
	return err
}

// podLister lists the pods of a store.
type podLister struct {
	corelisters.PodLister
	store cache.Indexer
}

// know adds pods to the API server.
func (d *Dispatcher) know(pods ...*v1.Pod) {
	for _, p := range pods {
		_ = d.pods.(podLister).store.Update(p) // it fails only for objects without a name
	}
}

// lose deletes a pod from the API server.
func (d *Dispatcher) lose(pod *v1.Pod) {
	_ = d.pods.(podLister).store.Delete(pod)
	d.podGone(pod)
}

// pod returns a pod that asks for some GPUs in a queue. Without a node it waits.
func pod(name, queue string, n int, on string) *v1.Pod {
	p := sample.Pod(name).SchedulerName(profile).Req(sample.GPUs(n)).Node(on)
	if queue != "" {
		p.Label(v1alpha1.QueueLabel, queue)
	}
	return p.Obj()
}

// giveTurns gives turns as long as there are any, as the waiting room does. The pods are called, except one that is on
// its way.
func (d *Dispatcher) giveTurns(except *v1.Pod) {
	for next, ok := d.First(turns.PolicyJobs); ok; next, ok = d.First(turns.PolicyJobs) {
		if one := d.Admit(context.Background(), next.Name); one != nil && (except == nil || one.UID != except.UID) {
			d.mu.Lock()
			d.toActivate = append(d.toActivate, one)
			d.mu.Unlock()
		}
	}
}

// comes brings a pod to the gate, gives the turns that there are, and returns why the pod waits.
func (d *Dispatcher) comes(pod *v1.Pod) string {
	if d.offer(pod) == "" {
		return ""
	}
	d.giveTurns(pod)
	return d.offer(pod)
}

// turns returns how many jobs have their turn.
func (d *Dispatcher) turns() int { return len(d.book.Jobs(queueing.Admitted)) }

// calledNow returns the pods that were called since the last time.
func (d *Dispatcher) calledNow() string {
	d.giveTurns(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, p := range d.toActivate {
		names = append(names, p.Name)
	}
	d.toActivate = nil
	return strings.Join(names, " ")
}

// podGroups knows the PodGroups of one name.
type podGroups struct {
	noGangs
	of gangspec.PodGroups
}

func (g podGroups) PodGroups(string, gangspec.Key) gangspec.PodGroups { return g.of }

// noGangs knows nothing of gangs but what pods say.
type noGangs struct{}

func (noGangs) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) {
	return gangstate.PlacementRequest{Pods: []*v1.Pod{pod}}, true
}
func (noGangs) Running(string, gangspec.Key) []gangstate.RunningGang { return nil }
func (noGangs) Progress(*v1.Pod) (gangstate.Progress, bool)          { return gangstate.Progress{}, false }
func (noGangs) PodGroups(string, gangspec.Key) gangspec.PodGroups    { return gangspec.PodGroups{} }
func (noGangs) GangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, _, named := gangspec.KeyOf(pod)
	return key, named
}
func (noGangs) OnMove(func(string, gangspec.Key))               {}
func (noGangs) Synced() bool                                    { return true }
func (noGangs) Changed()                                        {}
func (noGangs) Yield(context.Context, []hold.Holder)            {}
func (noGangs) Explain(context.Context, string, []gangspec.Key) {}
