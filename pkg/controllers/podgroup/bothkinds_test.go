package podgroup

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/members"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestBothKinds: a gang that has a PodGroup of each kind has one minimum, that of the community's, and all pods that
// name it by either. Each PodGroup says so.
func TestBothKinds(t *testing.T) {
	for sentence, c := range map[string]struct {
		basic       bool
		minimum     int // of the community's PodGroup; that of the native one is 2
		want        bool
		wantsNative bool
	}{
		"three of four are bound":                    {minimum: 4},
		"three of three are bound":                   {minimum: 3, want: true, wantsNative: true},
		"the native one makes no gang: two of three": {basic: true, minimum: 3, wantsNative: true},
		"the native one makes no gang: two of two":   {basic: true, minimum: 2, want: true, wantsNative: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := members.With(members.Pods("bound", "bound", "bound"), func(i int, p *v1.Pod) {
				p.Spec.SchedulerName = "lockstep-scheduler"
				if i == 0 {
					p.Labels, p.Spec.SchedulingGroup = nil, &v1.PodSchedulingGroup{PodGroupName: &members.Key.Name}
				}
			})
			native := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: members.Key.Namespace, Name: members.Key.Name}}
			if native.Spec.SchedulingPolicy.Gang = &(schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}); c.basic {
				native.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
			}
			community := members.PodGroup(int32(c.minimum), "")
			api := fakeapi.New(community, native).WithStatusSubresource(native)
			for _, pod := range pods {
				api = api.WithObjects(pod)
			}
			api = api.WithIndex(&v1.Pod{}, name, named.Index).WithIndex(&v1.Pod{}, nativeName, named.Index)
			stored := api.Build()
			follow := func(f *follower, name string) {
				f.client, f.clock, f.name = stored, testclock.NewFakePassiveClock(members.Epoch), name
				f.othersServed.Store(true)
			}
			r, n := &reconciler{}, &nativeReconciler{schedulers: sets.New("lockstep-scheduler")}
			follow(&r.follower, name)
			follow(&n.follower, nativeName)
			key := client.ObjectKey(members.Key)
			for _, one := range []reconcile.Reconciler{r, n} {
				_, err := one.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
				must.Succeed(t, err)
			}
			must.Succeed(t, stored.Get(t.Context(), key, community))
			must.Succeed(t, stored.Get(t.Context(), key, native))
			if got := community.Status.Phase == gangstatus.Scheduled; got != c.want {
				t.Errorf("the community's PodGroup is %s", community.Status.Phase)
			}
			if got := meta.IsStatusConditionTrue(native.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); got != c.wantsNative {
				t.Errorf("the native PodGroup says %v", native.Status.Conditions)
			}
		})
	}
}
