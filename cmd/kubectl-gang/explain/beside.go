package explain

import (
	"context"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/forecast/simulate"
	"github.com/lockstep-sh/lockstep/pkg/view"
)

// reader reads an object or a list of a cluster by its path.
type reader func(ctx context.Context, path string, into any) error

// beside is the objects that concern a gang, other than its pods. Those that do not exist are nil.
type beside struct {
	group     *coscheduling.PodGroup
	native    *schedulingv1beta1.PodGroup
	namespace *v1.Namespace
	// groupsRead is whether it is known which PodGroups of the name exist.
	groupsRead bool
	// reservations are those of the cluster; reservationsRead is whether these are all.
	reservations     []*v1alpha1.Reservation
	reservationsRead bool
	// notes are what could not be read.
	notes []string
}

// readBeside reads the objects that concern a gang, other than its pods, all at once. An object that cannot be read
// becomes a note, and the others are still reported.
func readBeside(ctx context.Context, read reader, gang string) *beside {
	namespace, name, _ := strings.Cut(gang, "/")
	b := &beside{}
	group, native := coscheduling.PodGroup{}, schedulingv1beta1.PodGroup{}
	var groups coscheduling.PodGroupList
	var natives schedulingv1beta1.PodGroupList
	var of v1.Namespace
	var reservations v1alpha1.ReservationList
	asks := []ask{
		{what: "its PodGroup is not known", path: "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/" + namespace + "/podgroups",
			name: name, one: &group, all: &groups, found: func(one bool) {
				b.group = pick(one, &group, groups.Items, func(g *coscheduling.PodGroup) bool { return g.Name == name })
			}},
		{what: "its native PodGroup is not known", path: "/apis/scheduling.k8s.io/v1beta1/namespaces/" + namespace +
			"/podgroups", name: name, one: &native, all: &natives, found: func(one bool) {
			b.native = pick(one, &native, natives.Items, func(g *schedulingv1beta1.PodGroup) bool { return g.Name == name })
		}},
		{what: "what its namespace says of the queue is not known", path: "/api/v1/namespaces", name: namespace, one: &of,
			found: func(bool) { b.namespace = &of }},
		{what: "Reservations are not known", path: "/apis/scheduling.lockstep.dev/v1alpha1/reservations",
			all: &reservations, found: func(bool) {
				b.reservationsRead = true
				for i := range reservations.Items {
					b.reservations = append(b.reservations, &reservations.Items[i])
				}
			}},
	}
	var all sync.WaitGroup
	for i := range asks {
		all.Go(func() { asks[i].read(ctx, read) })
	}
	all.Wait()
	b.groupsRead = asks[0].note == "" && asks[1].note == ""
	for i := range asks {
		if note := asks[i].note; note != "" {
			b.notes = append(b.notes, note)
		}
	}
	return b
}

// ask is something that is read.
type ask struct {
	path, name string
	// one is what the object of the name is read into, and all the list, where the list may be read and the object may
	// not; nil for neither.
	one, all any
	// found is called with what was read: one, or else the list.
	found func(one bool)
	// what is missing where nothing can be read, and note says that with the reason.
	what, note string
}

// read reads it. That it does not exist is not noted.
func (a *ask) read(ctx context.Context, read reader) {
	err := error(nil)
	if a.one != nil {
		if err = read(ctx, a.path+"/"+a.name, a.one); err == nil {
			a.found(true)
			return
		}
	}
	if a.all != nil && !simulate.IsNotFound(err) {
		if again := read(ctx, a.path, a.all); again == nil {
			a.found(false)
			return
		} else if err == nil {
			err = again
		}
	}
	if !simulate.IsNotFound(err) {
		a.note = a.what + ": " + err.Error()
	}
}

// pick returns one, or else the first of a list that is meant; nil for none.
func pick[T any](isOne bool, one *T, list []T, is func(*T) bool) *T {
	if isOne {
		return one
	}
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// row returns how a gang stands as kubectl gang list reports it, given the pods that name it; nil where there is no
// such gang.
func (b *beside) row(gang string, pods []*v1.Pod) *view.Gang {
	in := view.GangsIn{Pods: pods}
	if b.group != nil {
		in.PodGroups = append(in.PodGroups, b.group)
	}
	if b.native != nil {
		in.Natives = append(in.Natives, b.native)
	}
	if b.namespace != nil {
		in.Namespaces = append(in.Namespaces, b.namespace)
	}
	for _, g := range view.Gangs(in) {
		if g.Namespace+"/"+g.Name == gang {
			return &g
		}
	}
	return nil
}
