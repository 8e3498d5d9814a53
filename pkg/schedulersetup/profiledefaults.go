package schedulersetup

import (
	"slices"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/plugins/binder"
	"github.com/lockstep-sh/lockstep/plugins/fairshare"
	"github.com/lockstep-sh/lockstep/plugins/gang"
	"github.com/lockstep-sh/lockstep/plugins/heldcapacity"
	"github.com/lockstep-sh/lockstep/plugins/preemption"
	"github.com/lockstep-sh/lockstep/plugins/queuesort"
	"github.com/lockstep-sh/lockstep/plugins/reservation"
)

const (
	// gangWeight makes later members of a gang that prefers a topology go where the others are.
	gangWeight = 20
	// reservationWeight makes pods go to what is held for them, whatever other plugins score for another node.
	reservationWeight = 100
)

// Complete writes into profiles what they leave to the program. A profile that enables Gang at multiPoint gets
// Lockstep's plugins in the order that they need, at each extension point where it does not name them itself: what a
// user orders by hand is checked, and not repaired.
//
// Reservation and HeldCapacity come into every profile that does not name them: what a process promises, all of its
// profiles have to keep. They come last, and so after Gang; but Reservation comes before the binder, which does not
// know reserve pods.
func Complete(profiles []schedconfig.KubeSchedulerProfile) {
	gangs := false
	for i := range profiles {
		p := profiles[i].Plugins
		if at(p.MultiPoint, gang.Name) >= 0 {
			arrange(p)
			gangs = true
		}
		if !mentions(&p.MultiPoint, reservation.Name) {
			enable(&p.MultiPoint, schedconfig.Plugin{Name: reservation.Name, Weight: reservationWeight})
		}
		if at(p.MultiPoint, reservation.Name) >= 0 && !mentions(&p.Bind, reservation.Name) {
			p.Bind.Enabled = slices.Insert(p.Bind.Enabled, at(p.Bind, gang.Name)+1, schedconfig.Plugin{Name: reservation.Name})
		}
		if !mentions(&p.MultiPoint, heldcapacity.Name) {
			enable(&p.MultiPoint, schedconfig.Plugin{Name: heldcapacity.Name})
		}
	}
	for i := range profiles {
		p := profiles[i].Plugins
		switch { // all profiles of a process have one order
		case gangs && at(p.QueueSort, queuesort.Name) >= 0:
			replace(p, &p.QueueSort, names.PrioritySort)
		case gangs && len(p.QueueSort.Enabled)+len(p.QueueSort.Disabled) == 0:
			replace(p, &p.QueueSort, names.PrioritySort, queuesort.Name)
		}
	}
}

// arrange puts the plugins of a profile with gangs in order.
func arrange(p *schedconfig.Plugins) {
	// A gang waits for its members before it waits for its queue.
	all := p.MultiPoint.Enabled
	if own, queues := at(p.MultiPoint, gang.Name), at(p.MultiPoint, fairshare.Name); queues >= 0 && queues < own {
		plugin := all[own]
		p.MultiPoint.Enabled = slices.Insert(slices.Delete(all, own, own+1), queues, plugin)
	}
	// Gang plans a gang before, and explains it instead of, its members one by one.
	first(&p.PreFilter, gang.Name)
	// Gang makes way for no single member. Then GangPreemption makes room for whole gangs, and for single pods by the
	// same rules.
	first(&p.PostFilter, gang.Name)
	if at(p.MultiPoint, preemption.Name) >= 0 {
		if !mentions(&p.PostFilter, preemption.Name) {
			p.PostFilter.Enabled = slices.Insert(p.PostFilter.Enabled, at(p.PostFilter, gang.Name)+1,
				schedconfig.Plugin{Name: preemption.Name})
		}
		replace(p, &p.PostFilter, names.DefaultPreemption)
	}
	if p.MultiPoint.Enabled[at(p.MultiPoint, gang.Name)].Weight == 0 && !mentions(&p.Score, gang.Name) {
		p.Score.Enabled = slices.Insert(p.Score.Enabled, 0, schedconfig.Plugin{Name: gang.Name, Weight: gangWeight})
	}
	// Held members wait in Gang's Bind and not at Permit, which costs an API write for each of them.
	if !slices.ContainsFunc(p.Bind.Enabled, bindsPods) && !mentions(&p.MultiPoint, binder.Name) {
		replace(p, &p.Bind, names.DefaultBinder, binder.Name)
	}
	first(&p.Bind, gang.Name)
}

// bindsPods reports whether a plugin at bind may be a binder: of ours, Gang and Reservation bind no pods of others.
func bindsPods(p schedconfig.Plugin) bool { return p.Name != gang.Name && p.Name != reservation.Name }

// first makes a plugin that is enabled at multiPoint the first at an extension point that does not name it.
func first(point *schedconfig.PluginSet, name string) {
	if !mentions(point, name) {
		point.Enabled = slices.Insert(point.Enabled, 0, schedconfig.Plugin{Name: name})
	}
}

// replace disables a plugin of kube-scheduler at an extension point of a profile, and enables others there, unless the
// profile names it.
func replace(p *schedconfig.Plugins, point *schedconfig.PluginSet, stock string, with ...string) {
	if mentions(point, stock) || disables(&p.MultiPoint, stock) {
		return
	}
	point.Disabled = append(point.Disabled, schedconfig.Plugin{Name: stock})
	for _, name := range with {
		enable(point, schedconfig.Plugin{Name: name})
	}
}

func enable(point *schedconfig.PluginSet, plugin schedconfig.Plugin) {
	point.Enabled = append(point.Enabled, plugin)
}

// mentions reports whether a profile enables or disables a plugin at an extension point.
func mentions(set *schedconfig.PluginSet, name string) bool {
	return at(*set, name) >= 0 || disables(set, name)
}

// disables reports whether a profile disables a plugin at an extension point, or all plugins.
func disables(set *schedconfig.PluginSet, name string) bool {
	return slices.ContainsFunc(set.Disabled, func(p schedconfig.Plugin) bool { return p.Name == name || p.Name == "*" })
}
