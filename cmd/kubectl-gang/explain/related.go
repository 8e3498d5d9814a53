package explain

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
)

// reader reads an object or a list of a cluster by its path.
type reader func(ctx context.Context, path string, into any) error

// relatedObjects is the objects that concern a gang, other than its pods.
type relatedObjects struct {
	// of has its PodGroups and its namespace, as far as they exist.
	of view.GangsIn
	// groupsRead is whether it is known which PodGroups of the name exist.
	groupsRead bool
	// reservations are those of the cluster; reservationsRead is whether these are all.
	reservations     []*v1alpha1.Reservation
	reservationsRead bool
	// plans are the DefragmentationPlans for the gang that have not ended.
	plans []*v1alpha1.DefragmentationPlan
	// notes are what could not be read.
	notes []string
}

// readRelated reads the objects that concern a gang, other than its pods, all at once. What cannot be read becomes a
// note, and the others are still reported.
func readRelated(ctx context.Context, read reader, gang string) *relatedObjects {
	namespace, name, _ := strings.Cut(gang, "/")
	podGroups := "/namespaces/" + namespace + "/podgroups?" +
		url.Values{"fieldSelector": {"metadata.name=" + name}}.Encode()
	var groups coscheduling.PodGroupList
	var natives schedulingv1beta1.PodGroupList
	var home v1.Namespace
	var reservations v1alpha1.ReservationList
	var plans v1alpha1.DefragmentationPlanList
	asks := []struct {
		what, path string
		into       any
		err        error
	}{
		{"its PodGroup is not known", "/apis/scheduling.x-k8s.io/v1alpha1" + podGroups, &groups, nil},
		{"its native PodGroup is not known", "/apis/scheduling.k8s.io/v1beta1" + podGroups, &natives, nil},
		{"what its namespace says of the queue is not known", "/api/v1/namespaces/" + namespace, &home, nil},
		{"Reservations are not known", "/apis/scheduling.lockstep.dev/v1alpha1/reservations", &reservations, nil},
		{"DefragmentationPlans are not known", "/apis/scheduling.lockstep.dev/v1alpha1/defragmentationplans", &plans, nil},
	}
	var all sync.WaitGroup
	for i := range asks {
		all.Go(func() { asks[i].err = read(ctx, asks[i].path, asks[i].into) })
	}
	all.Wait()
	b := &relatedObjects{groupsRead: true, reservations: apiobjects.Pointers(reservations.Items),
		reservationsRead: asks[3].err == nil}
	for i, ask := range asks {
		if ask.err != nil && !apierrors.IsNotFound(ask.err) { // what does not exist is not missed
			b.notes = append(b.notes, ask.what+": "+ask.err.Error())
			b.groupsRead = b.groupsRead && i > 1
		}
	}
	// A dump has whole lists.
	b.of.PodGroups = slices.DeleteFunc(apiobjects.Pointers(groups.Items), func(g *coscheduling.PodGroup) bool {
		return g.Name != name
	})
	b.of.Natives = slices.DeleteFunc(apiobjects.Pointers(natives.Items), func(g *schedulingv1beta1.PodGroup) bool {
		return g.Name != name
	})
	b.plans = slices.DeleteFunc(apiobjects.Pointers(plans.Items), func(p *v1alpha1.DefragmentationPlan) bool {
		return p.Spec.Goal.PodGroup != gang || migration.PlanEnded(p.Status.Phase)
	})
	if asks[2].err == nil {
		b.of.Namespaces = []*v1.Namespace{&home}
	}
	return b
}

// row returns how a gang stands as kubectl gang list reports it, given the pods that name it; nil where there is no
// such gang.
func (b *relatedObjects) row(gang string, pods []*v1.Pod) *view.Gang {
	in := b.of
	in.Pods = pods
	for _, g := range view.Gangs(in) {
		if g.Key().String() == gang {
			return &g
		}
	}
	return nil
}
