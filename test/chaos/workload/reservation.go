package workload

import (
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Reservation is capacity that a user has held for a gang, or a single pod, that is to come or that may come again.
type Reservation struct {
	Name string
	// Replicas is for how many members.
	Replicas         int
	Once, Restricted bool
	// ByGang: its owners are the members of the gang; else all pods with its label.
	ByGang bool
	TTL    time.Duration
}

// ReservationName returns the name of the Reservation for a gang.
func ReservationName(g *Gang) string { return "for-" + g.Name }

// reserve makes up a Reservation for the first gang of a work, in some cases; it comes before the gang does, or when
// the gang is there already.
func (w *Work) reserve(r *rand.Rand) {
	g := &w.Gangs[0]
	if !chance(r, 65) {
		return
	}
	one := &Reservation{
		Name: ReservationName(g), Replicas: g.Size, Once: chance(r, 60), Restricted: chance(r, 30),
		ByGang: g.Join != None && chance(r, 50), TTL: between(r, 5*time.Second, 60*time.Second).Truncate(time.Second),
	}
	switch pick(r, 50, 25, 25) {
	case 1:
		one.Replicas = 1 + r.IntN(g.Size)
	case 2:
		one.Replicas = min(g.Size+1, 8)
	}
	w.Reservation = one
	g.ByName = g.Join == None && chance(r, 20)
	begin, at := w.begin(), w.begin()
	if chance(r, 75) {
		later := between(r, 0, 8*time.Second)
		for i := range w.Steps {
			w.Steps[i].At += later
		}
		w.Steps = append([]Step{{At: at, Do: Reserve}}, w.Steps...)
	} else {
		w.step(Step{At: between(r, begin+time.Second, w.end()), Do: Reserve})
	}
	if chance(r, 25) {
		w.step(Step{At: between(r, begin+2*time.Second, w.end()), Do: Unreserve})
	}
}

// Object makes the Reservation of a gang.
func (one *Reservation) Object(g *Gang) *v1alpha1.Reservation {
	template := g.template()
	maps.DeleteFunc(template.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "gang.scheduling.koordinator.sh/") || key == v1alpha1.ReservationAnnotation
	})
	delete(template.Labels, v1alpha1.PodGroupXLabel)
	if g.Rack && one.Replicas > 1 {
		maps.Copy(template.Annotations, map[string]string{v1alpha1.RequiredTopologyAnnotation: g.annotations()[v1alpha1.RequiredTopologyAnnotation]})
	}
	if g.Queue != "" {
		template.Labels[v1alpha1.QueueLabel] = g.Queue
	}
	owner := v1alpha1.ReservationOwner{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{GangLabel: g.Name}}}
	if one.ByGang {
		owner = v1alpha1.ReservationOwner{PodGroup: g.Key()}
	}
	policy := v1alpha1.AllocateAligned
	if one.Restricted {
		policy = v1alpha1.AllocateRestricted
	}
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: one.Name},
		Spec: v1alpha1.ReservationSpec{
			Template: template, Owners: []v1alpha1.ReservationOwner{owner}, Replicas: int32(one.Replicas), AllocateOnce: &one.Once,
			AllocatePolicy: policy, TTL: &metav1.Duration{Duration: one.TTL},
		},
	}
}
