package hold

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Consume gives a pod that is now counted on the node of a hold a part of it: as much of its request as is left. That
// much is not held beside the pod, but stays its part: it is held again when the pod returns it. The pod's plan place
// or nomination there stays, and contains that part. Consume returns false if the pod gets no part: there is no such
// hold, or nothing is left that the pod requests.
func (l *Ledger) Consume(id ID, pod types.UID, request resource.Vector, ports ...Port) bool {
	of, ok := l.holds[id]
	if !ok || of.For != "" {
		return false
	}
	h, has := l.Hold(IDOf(pod))
	if !has || h.Node != of.Node || h.Reason == Reservation {
		// Until the pod returns it, its part is for no other pod, not even for those that may use the rest.
		h = Hold{
			For: pod, Node: of.Node, Reason: Reservation, Priority: of.Priority, Pods: 1, Request: request, Ports: ports,
			Holder: Holder{Profile: of.Holder.Profile, Group: SinglePod(pod)},
		}
	}
	h.From = id
	l.Put(h)
	if h.Reason == Reservation {
		l.keepPart(IDOf(pod))
	}
	return l.holds[IDOf(pod)].From == id
}

// ReturnParts returns what pods have taken of holds. If the hold has ended, the part is free. Plan places and
// nominations return their parts when they end.
func (l *Ledger) ReturnParts(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		if h, ok := l.Hold(IDOf(pod)); ok && h.Reason == Reservation {
			l.Drop(h.ID)
			c.Freed = append(c.Freed, h.Node) // at least for the pods that may use the hold
		}
	}
	return c
}

// Left returns what pods have not taken of a hold; nothing if there is no such hold.
func (l *Ledger) Left(id ID) Taken {
	return Taken{}.Plus(l.holds[id].left)
}

// LeftWithout returns what would be left of a hold if others were not there: those for which without returns true.
func (l *Ledger) LeftWithout(without func(Hold) bool, id ID) Taken {
	left := l.Left(id)
	for part := range l.parts[id] {
		if e := l.holds[part]; without(e.Hold) {
			left.add(e.part, 1)
		}
	}
	return left
}

// Parts returns what pods have taken of a hold.
func (l *Ledger) Parts(id ID) map[types.UID]Taken {
	parts := map[types.UID]Taken{}
	for part := range l.parts[id] {
		e := l.holds[part]
		parts[e.For] = e.part
	}
	return parts
}

// keepPart ends the hold of a pod that is counted on its node, except for what the pod has taken of another hold, which
// it returns later.
func (l *Ledger) keepPart(id ID) {
	e := l.holds[id]
	if e.From == "" {
		l.Drop(id)
		return
	}
	h := e.Hold
	h.Reason, h.WasNominated, h.Recalled, h.Claim = Reservation, false, false, 0
	h.Pods, h.Request, h.Ports = e.part.Pods, e.part.Request, e.part.Ports
	l.Put(h)
}

// takePart takes a part for a hold of the hold in its From: of each amount at most what is left.
func (l *Ledger) takePart(h Hold) Taken {
	from, ok := l.holds[h.From]
	if h.From == "" || !ok || from.For != "" || from.Node != h.Node {
		return Taken{}
	}
	part := from.left.Part(Taken{Pods: h.Pods, Request: h.Request, Ports: h.Ports})
	l.changeLeft(from, part, -1)
	return part
}

// Part returns as much of an amount as t has.
func (t Taken) Part(of Taken) Taken {
	part := Taken{Pods: min(of.Pods, t.Pods), Request: resource.Vector{}}
	for name, amount := range of.Request {
		if n := min(amount, t.Request[name]); n > 0 {
			part.Request[name] = n
		}
	}
	for _, port := range of.Ports {
		if slices.Contains(t.Ports, port) && !slices.Contains(part.Ports, port) {
			part.Ports = append(part.Ports, port)
		}
	}
	return part
}

// Plus returns the sum of both.
func (t Taken) Plus(other Taken) Taken { return t.with(other, 1) }

// Minus returns t without other, which must be a part of it.
func (t Taken) Minus(other Taken) Taken { return t.with(other, -1) }

func (t Taken) with(other Taken, by int) Taken {
	sum := Taken{Pods: t.Pods, Request: resource.Vector{}, Ports: slices.Clone(t.Ports)}
	sum.Request.Add(t.Request, 1)
	sum.add(other, by)
	return sum
}

// changeLeft adds to what is left of a hold, or with -1 subtracts.
func (l *Ledger) changeLeft(of entry, part Taken, by int) {
	of.left = of.left.with(part, by)
	l.holds[of.ID] = of
	l.addToShare(l.nodes[of.Node], of.Holder, part, by)
}

// recordPart records that a hold has, or no longer has, a part of another.
func (l *Ledger) recordPart(e entry, has bool) {
	switch {
	case e.From == "":
	case has:
		nested.Set(l.parts, e.From, e.ID, true)
	default:
		nested.Delete(l.parts, e.From, e.ID)
	}
}

// takers returns the holds that have parts of a hold, by ID.
func (l *Ledger) takers(id ID) []Hold {
	if of, ok := l.holds[id]; !ok || of.For != "" {
		return nil // a pod's hold has no parts
	}
	var found []Hold
	for part := range l.parts[id] {
		found = append(found, l.holds[part].Hold)
	}
	slices.SortFunc(found, func(a, b Hold) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// takenFrom returns the hold of which each hold of a plan takes a part: its own From, or the hold of which its pod has
// a part on that node already.
func (l *Ledger) takenFrom(plan []Hold) []ID {
	from := make([]ID, len(plan))
	for i, h := range plan {
		from[i] = h.From
		if now := l.holds[IDOf(h.For)]; h.From == "" && now.Node == h.Node {
			from[i] = now.From
		}
	}
	return from
}
