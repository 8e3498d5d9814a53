package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate/owners"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Reserved is a Reservation of which members are owners.
type Reserved struct {
	Name string `json:"name"`
	// Members is how many members that wait may use it, as its owners say.
	Members int    `json:"members"`
	Phase   string `json:"phase,omitempty"`
	// Held of Replicas placements are held, and Used is how many pods use them.
	Held     int      `json:"held"`
	Replicas int      `json:"replicas"`
	Used     int      `json:"used"`
	Nodes    []string `json:"nodes,omitempty"`
	// Unusable is why they cannot use it; empty where they can.
	Unusable string `json:"unusable,omitempty"`
}

// reserved lists the Reservations that members which wait may use, or name. Of those that have ended it lists only the
// ones that they name.
func reserved(list []*v1alpha1.Reservation, waiting []*v1.Pod) ([]Reserved, error) {
	owned, err := owners.Owned(list, waiting)
	if err != nil {
		return nil, fmt.Errorf("reading the owners of Reservations: %w", err)
	}
	named := namedBy(waiting)
	known, all := map[string]bool{}, []Reserved{}
	for _, row := range view.Reservations(list) {
		known[row.Name] = true
		if named[row.Name] > 0 || owned[row.Name] > 0 && row.Ended == nil {
			all = append(all, Reserved{
				Name: row.Name, Members: owned[row.Name], Phase: row.Phase, Held: row.Held, Replicas: row.Replicas,
				Used: row.Used, Nodes: row.Nodes,
				Unusable: unusable(&row, owned[row.Name], len(waiting), named),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !known[name] {
			all = append(all, Reserved{Name: name, Unusable: "members name it, and it does not exist"})
		}
	}
	return all, nil
}

// namedBy returns how many pods name which Reservation: these go there or nowhere.
func namedBy(pods []*v1.Pod) map[string]int {
	named := map[string]int{}
	for _, pod := range pods {
		if name, ok := reservationstate.NamedBy(pod); ok {
			named[name]++
		}
	}
	return named
}

// unusable returns why members that wait cannot use a Reservation; empty where they can. owners is how many of them are
// among its owners.
func unusable(row *view.Reservation, owners, waiting int, named map[string]int) string {
	others := 0
	for name, n := range named {
		if name != row.Name {
			others += n
		}
	}
	switch {
	case row.Ended != nil:
		return "it has ended"
	case owners == 0:
		return "members name it, and are none of its owners"
	case others == waiting:
		return "all members name another"
	case row.Phase == string(v1alpha1.ReservationPending):
		return strings.TrimSuffix("it holds nothing yet: "+row.Message, ": ")
	case row.Held == 0:
		return "all of it has been used"
	case full(row):
		return "pods use all that it holds"
	}
	return ""
}

// full reports whether pods use as much as a Reservation holds of some resource.
func full(row *view.Reservation) bool {
	for name, has := range row.Allocatable {
		if used := row.Allocated[name]; !has.IsZero() && used.Cmp(has) >= 0 {
			return true
		}
	}
	return false
}

// words says what a Reservation holds, and why it cannot be used.
func (r *Reserved) words() string {
	if r.Phase == "" {
		return fmt.Sprintf("Reservation %s: %s", r.Name, r.Unusable)
	}
	text := fmt.Sprintf("Reservation %s: %s, for %d members; %d of %d placements are held, and %d pods use them", r.Name,
		r.Phase, r.Members, r.Held, r.Replicas, r.Used)
	if r.Unusable != "" {
		return text + "; it cannot be used: " + r.Unusable
	}
	return text + ", on " + words.FirstOf(shown, r.Nodes)
}

// heldForOthers names the Reservations that hold what the gang is short of now, and that its members do not own, the
// largest first; empty where no node was refused for what others hold, or no Reservation holds any.
func (r *Report) heldForOthers(list []*v1alpha1.Reservation, now time.Time) string {
	best := r.Cases[0].best(r.Gang)
	if best == nil || r.Cases[0].Placement.Refusals[hold.ErrReason] == 0 || r.contradicted() {
		return ""
	}
	short := slices.Sorted(maps.Keys(best.Short))
	unused := map[string]v1.ResourceList{} // by Reservation
	rows := slices.DeleteFunc(view.Reservations(list), func(row view.Reservation) bool {
		left := v1.ResourceList{}
		for _, name := range short {
			amount := row.Allocatable[v1.ResourceName(name)].DeepCopy()
			if amount.Sub(row.Allocated[v1.ResourceName(name)]); amount.Sign() > 0 {
				left[v1.ResourceName(name)] = amount
			}
		}
		unused[row.Name] = left
		owned := slices.ContainsFunc(r.Reservations, func(own Reserved) bool {
			return own.Name == row.Name && own.Members > 0
		})
		return owned || row.Held == 0 || len(left) == 0
	})
	if len(rows) == 0 {
		return ""
	}
	slices.SortStableFunc(rows, func(a, b view.Reservation) int {
		for _, name := range short {
			x, y := unused[a.Name][v1.ResourceName(name)], unused[b.Name][v1.ResourceName(name)]
			if order := y.Cmp(x); order != 0 {
				return order
			}
		}
		return 0
	})
	var parts []string
	for _, row := range rows {
		text := fmt.Sprintf("%s on %s (%s) by Reservation %s", amounts(unused[row.Name]),
			words.Count(len(row.Nodes), "node"), words.FirstOf(named, row.Nodes), row.Name)
		if row.Expires != nil {
			text += " for " + duration.HumanDuration(max(0, row.Expires.Sub(now))) + " more"
		}
		parts = append(parts, text)
	}
	return "Held for others: " + words.FirstOf(named, parts)
}
