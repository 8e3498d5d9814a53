package podgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
)

// settle is how long events of one gang gather before it is reconciled, and so the
// least time between two writes for it: a gang that starts passes through several
// phases in less. Watch events may have gathered before, for as long again.
const settle = 500 * time.Millisecond

// follower follows the PodGroups of one kind, and their pods.
type follower struct {
	client client.Client
	clock  clock.PassiveClock
	// name is the name of the controller, and of its index of pods by the gang that they name.
	name string
	// othersServed: the API server serves PodGroups of the other kind, too.
	othersServed atomic.Bool
	// pods is the watch of members.
	pods crds.OnDemand
	// histories are the histories of gangs with a PodGroup, by its key.
	histories sync.Map
}

// history is what is known of a gang from before. It is used by one reconciliation at a time.
type history struct {
	gangstate.History
	// refusedByKubelet is how many of its pods kubelets had refused when that was last told.
	refusedByKubelet int
}

// reconciler keeps the status of community PodGroups up to date.
type reconciler struct {
	follower
	recorder events.EventRecorder
	// jobs reads Jobs from the API server.
	jobs client.Reader
	// pruned: the API server dropped the conditions of the last write, because the CRD lacks them. Conditions are then
	// written only together with other fields, which also shows when the CRD has been replaced.
	pruned atomic.Bool
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pg := &coscheduling.PodGroup{}
	found, groups, pods, err := r.read(ctx, request.NamespacedName, pg, &schedulingv1beta1.PodGroup{})
	if err != nil || !found {
		return reconcile.Result{}, err
	}
	known := r.historyOf(request.NamespacedName, func() *gangstate.History { return gangstatus.Resume(pg, pods) })
	facts := gangstatus.FactsOf(gangspec.Key(request.NamespacedName), groups.Object(), pods, &known.History)
	want := gangstatus.Next(pg, facts, metav1.NewTime(r.clock.Now()))
	conditions, pruned := want.Conditions, r.pruned.Load()
	if pruned {
		want.Conditions = pg.Status.Conditions
	}
	fields := gangstatus.Changes(pg.Status, want)
	if len(fields) == 0 {
		known.refusedByKubelet = len(facts.RefusedByKubelet)
		return r.endEvicted(ctx, pg, facts, want.Phase)
	}
	if pruned {
		fields["conditions"] = conditions
	}
	result, err := r.write(ctx, pg, fields) // what else there is to write follows: the PodGroup changes with it
	if err == nil && result.IsZero() {
		if e := refusedByKubelet(pg, facts, known.refusedByKubelet); e != nil {
			e.Record(r.recorder)
		}
		known.refusedByKubelet = len(facts.RefusedByKubelet)
	}
	return result, err
}

// historyOf returns what is known of a gang from before. begin returns it for one that was not looked at yet.
func (f *follower) historyOf(key types.NamespacedName, begin func() *gangstate.History) *history {
	known, ok := f.histories.Load(key)
	if !ok {
		known = &history{History: *begin()}
		f.histories.Store(key, known)
	}
	return known.(*history)
}

// read returns whether there is a PodGroup, and reads it into pg, the one of the other kind into other; what both say;
// and the pods that name their gang, also where a native PodGroup makes no gang of them. They are from the cache, and
// not to be changed.
func (f *follower) read(ctx context.Context, key types.NamespacedName,
	pg, other client.Object) (found bool, said gangspec.PodGroups, pods []*v1.Pod, err error) {
	found, err = objects.Read(ctx, f.client, key, pg)
	if err == nil && !found {
		f.histories.Delete(key)
	}
	if err != nil || !found {
		return false, said, nil, err
	}
	said.Read(pg)
	if f.othersServed.Load() {
		if both, err := objects.Read(ctx, f.client, key, other); err != nil {
			return false, said, nil, err
		} else if both {
			said.Read(other)
		}
	}
	if pods, err = f.naming(ctx, key); err != nil {
		return false, said, nil, err
	}
	native := func(gangspec.Key) *gangspec.PodGroupDescription { return said[gangspec.Native] }
	_, isNative := pg.(*schedulingv1beta1.PodGroup)
	alone := isNative && said[gangspec.Native].MakesNoGang()
	return true, said, slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		_, _, member := gangspec.GangOf(pod, native)
		return member == alone
	}), nil
}

// naming returns the pods that name a gang, from the cache and not to be changed.
func (f *follower) naming(ctx context.Context, key types.NamespacedName) ([]*v1.Pod, error) {
	if err := f.pods.Ensure(); err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := f.client.List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingFields{f.name: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the members of gang %s: %w", key, err)
	}
	return apiobjects.Pointers(list.Items), nil
}

// write patches the status, provided that the object has not changed since it
// was read: the list of conditions is replaced as a whole, and others write there too.
func (r *reconciler) write(ctx context.Context, pg *coscheduling.PodGroup,
	fields map[string]any) (reconcile.Result, error) {
	key := types.NamespacedName{Namespace: pg.Namespace, Name: pg.Name}
	written := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": pg.ResourceVersion},
		"status":   fields,
	})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encoding the status of PodGroup %s: %w", key, err)
	}
	// Without validation: an API server that prunes conditions would warn each time.
	err = r.client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body),
		client.FieldOwner(objects.FieldOwner), client.FieldValidation(metav1.FieldValidationIgnore))
	if err != nil {
		return objects.WriteResult(err, settle, fmt.Sprintf("the status of PodGroup %s", key))
	}
	if _, ok := fields["conditions"]; ok {
		r.notePruning(ctx, written)
	}
	return reconcile.Result{}, nil
}

// notePruning checks whether the conditions that were written are there.
func (r *reconciler) notePruning(ctx context.Context, written *coscheduling.PodGroup) {
	pruned := meta.FindStatusCondition(written.Status.Conditions, v1alpha1.ConditionScheduled) == nil
	if was := r.pruned.Swap(pruned); was == pruned {
		return
	}
	if pruned {
		klog.FromContext(ctx).Info("PodGroups of this cluster have no status.conditions: their CRD is not Lockstep's; why " +
			"gangs wait is only told by events")
	} else {
		klog.FromContext(ctx).Info("PodGroups have status.conditions now")
	}
}
