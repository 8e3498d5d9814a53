package evictions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const profile = sample.Profile

// known has what runs of gangs of one profile, with the gangs that start together with them.
type known map[gangspec.Key][]gangstate.RunningGang

func (k known) Running(of string, key gangspec.Key) []gangstate.RunningGang {
	if of != profile {
		return nil
	}
	return slices.Clone(k[key])
}

// IsEvictedAlone reports whether a pod is in no gang, or has the label single, which stands for a PodGroup that is no
// gang.
func (k known) IsEvictedAlone(pod *v1.Pod) bool {
	_, _, member := gangspec.KeyOf(pod)
	return !member || pod.Labels["single"] != ""
}

func (k known) PodGroupsOf(gangspec.Key) gangspec.PodGroups { return gangspec.PodGroups{} }

// described are gangs that have PodGroups.
type described struct {
	known
	said gangspec.PodGroups
}

func (d described) PodGroupsOf(gangspec.Key) gangspec.PodGroups { return d.said }

// onTheirWay are pods at Permit.
type onTheirWay map[types.UID]*sample.WaitingPod

func (o onTheirWay) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if pod := o[uid]; pod != nil {
		return pod
	}
	return nil
}

func (o onTheirWay) GetPodInPreBind(types.UID) fwk.PodInPreBind { return nil }

// stage is an evictor, with an API server that has some pods.
type stage struct {
	*Evictor
	ctx    context.Context
	client *fake.Clientset
	events *events.FakeRecorder
	// refuse handles deletions in place of the API server; nil leaves them to it.
	refuse func(name string, dry bool) error
}

func newStage(t *testing.T, gangs Gangs, pods ...*v1.Pod) *stage {
	t.Helper()
	metrics.Register() // the one of parallel calls
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var objects []runtime.Object
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	s := &stage{ctx: ctx, client: fake.NewClientset(objects...), events: events.NewFakeRecorder(100)}
	s.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		call := a.(clienttesting.DeleteAction)
		dry := len(call.GetDeleteOptions().DryRun) > 0 // the fake API server ignores dry runs
		if s.refuse != nil {
			if err := s.refuse(call.GetName(), dry); err != nil {
				return true, nil, err
			}
		}
		return dry, nil, nil
	})
	factory := informers.NewSharedInformerFactory(s.client, 0)
	informer := factory.Core().V1().Pods()
	byUID, err := PodsByUID(informer.Informer())
	must.Succeed(t, err)
	s.Evictor = &Evictor{
		Profile: profile, Client: s.client.CoreV1(), Recorder: s.events, Clock: clock.RealClock{}, Pod: byUID, Pods: informer.Lister(),
		InFlight: onTheirWay{}, Gangs: gangs, Underway: NewActivePreemptions(),
		Jobs: Jobs{Client: s.client.BatchV1(), EvictBy: v1alpha1.EvictByDelete, Namespaces: factory.Core().V1().Namespaces().Lister()},
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.PodUpdated(object.(*v1.Pod)) },
		UpdateFunc: func(_, object any) { s.PodUpdated(object.(*v1.Pod)) },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return s
}

// marked counts the pods that are known to be marked.
func (s *stage) marked() (n int) {
	for range s.unfinished.Range {
		n++
	}
	return n
}

// left lists the pods that the API server has.
func (s *stage) left(t *testing.T) string {
	t.Helper()
	list, err := s.client.CoreV1().Pods("").List(s.ctx, metav1.ListOptions{})
	must.Succeed(t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// now returns a pod as the API server has it.
func (s *stage) now(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod, err := s.client.CoreV1().Pods("default").Get(s.ctx, name, metav1.GetOptions{})
	must.Succeed(t, err)
	return pod
}

// members returns pods of a gang; without a minimum they are in none. Without a node they wait.
func members(name string, n, min int, node string) []*v1.Pod {
	var pods []*v1.Pod
	for i := range n {
		pods = append(pods, sample.Member(name, i, min).Node(node).Obj())
	}
	return pods
}

// runs returns what runs of a gang.
func runs(name string, min int, pods ...*v1.Pod) gangstate.RunningGang {
	f := gangstate.RunningGang{Key: gangspec.Key{Namespace: "default", Name: name}, Min: min}
	for _, pod := range pods {
		f.Running = append(f.Running, gangstate.Placed{Pod: pod, Node: pod.Spec.NodeName})
	}
	return f
}

func forbidden(name string) error {
	return apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("policy"))
}
