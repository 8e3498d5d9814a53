package page

import (
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
)

// Contents are what the page shows, except the history.
type Contents struct {
	Gangs        []Gang             `json:"gangs"`
	Queues       []view.Queue       `json:"queues"`
	Topology     view.Topology      `json:"topology"`
	Reservations []view.Reservation `json:"reservations"`
	Plans        []Plan             `json:"plans"`
	Migrations   []view.Migration   `json:"migrations"`
}

// Gang is a gang, and why its members wait.
type Gang struct {
	view.Gang `json:",inline"`
	Waits     []view.Wait `json:"waits,omitempty"`
}

// Plan is a plan, and what it moves.
type Plan struct {
	view.Plan `json:",inline"`
	Moving    []view.Move `json:"moving,omitempty"`
}

// ContentsOf returns what the page shows of some objects. counts has the devices of nodes; nil for none.
func ContentsOf(o Objects, counts *clusterdevices.Counts) Contents {
	levels := view.Levels(o.Nodes)
	return Contents{
		Gangs:        gangs(o, levels),
		Queues:       view.Queues(o.Queues),
		Reservations: view.Reservations(o.Reservations),
		Plans:        plans(o),
		Migrations:   view.Migrations(o.Migrations),
		Topology: view.TopologyOf(view.TopologyIn{
			Nodes: o.Nodes, Pods: o.Pods, Reservations: o.Reservations, Levels: levels,
			Devices: view.Devices{Counts: counts, Claims: o.Claims, Templates: o.Templates},
		}),
	}
}

func gangs(o Objects, levels []string) []Gang {
	in := view.GangsIn{
		Pods: o.Pods, PodGroups: o.PodGroups, Natives: o.Natives, Nodes: o.Nodes, Namespaces: o.Namespaces, Levels: levels,
	}
	list, waits := view.Gangs(in), view.Waits(in)
	rows := make([]Gang, 0, len(list))
	for _, g := range list {
		rows = append(rows, Gang{Gang: g, Waits: waits[g.Key()]})
	}
	return rows
}

func plans(o Objects) []Plan {
	moving := make(map[string][]view.Move, len(o.Plans))
	for _, p := range o.Plans {
		moving[p.Name] = view.Moves(p)
	}
	list := view.Plans(o.Plans)
	rows := make([]Plan, 0, len(list))
	for _, p := range list {
		rows = append(rows, Plan{Plan: p, Moving: moving[p.Name]})
	}
	return rows
}
