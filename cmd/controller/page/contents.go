package page

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/overview"
)

// Contents are what the page shows, except the history.
type Contents struct {
	Gangs        []Gang                 `json:"gangs"`
	Queues       []overview.Queue       `json:"queues"`
	Topology     overview.Topology      `json:"topology"`
	Reservations []overview.Reservation `json:"reservations"`
	Plans        []Plan                 `json:"plans"`
	Migrations   []overview.Migration   `json:"migrations"`
}

// Gang is a gang, and why its members wait.
type Gang struct {
	overview.Gang `json:",inline"`
	Waits         []overview.Wait `json:"waits,omitempty"`
}

// Plan is a plan, and what it moves.
type Plan struct {
	overview.Plan `json:",inline"`
	Moving        []overview.Move `json:"moving,omitempty"`
}

// ContentsOf returns what the page shows of some objects.
func ContentsOf(o Objects) Contents {
	levels := overview.Levels(o.Nodes)
	return Contents{
		Gangs:        gangs(o, levels),
		Queues:       overview.Queues(o.Queues),
		Reservations: overview.Reservations(o.Reservations),
		Plans:        plans(o),
		Migrations:   overview.Migrations(o.Migrations),
		Topology: overview.TopologyOf(overview.TopologyIn{
			Nodes: o.Nodes, Pods: o.Pods, Reservations: o.Reservations, Levels: levels, Resource: overview.DefaultResource(o.Nodes),
		}),
	}
}

func gangs(o Objects, levels []string) []Gang {
	in := overview.GangsIn{PodGroups: o.PodGroups, Natives: o.Natives, Nodes: o.Nodes, Namespaces: o.Namespaces, Levels: levels}
	for _, pod := range o.Pods {
		if overview.IsMember(pod) {
			in.Pods = append(in.Pods, pod)
		}
	}
	waits, list := overview.Waits(in.Pods), overview.Gangs(in)
	rows := make([]Gang, 0, len(list))
	for _, g := range list {
		rows = append(rows, Gang{Gang: g, Waits: waits[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}]})
	}
	return rows
}

func plans(o Objects) []Plan {
	moving := make(map[string][]overview.Move, len(o.Plans))
	for _, p := range o.Plans {
		moving[p.Name] = overview.Moves(p)
	}
	list := overview.Plans(o.Plans)
	rows := make([]Plan, 0, len(list))
	for _, p := range list {
		rows = append(rows, Plan{Plan: p, Moving: moving[p.Name]})
	}
	return rows
}
