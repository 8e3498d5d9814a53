package hold

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Consume lets a pod that is counted on the node of a hold from now on take a part of it: as much
// of the pod's request as is left. That much is not held beside the pod, but stays the pod's part:
// it is held again when the pod gives it back. A place in a plan that the pod has there, or a
// nomination, stays as it is, with that part in it. It returns false if the pod gets no part: there
// is no such hold, or nothing that the pod asks for is left of it.
func (l *Ledger) Consume(id ID, pod types.UID, request resource.Vector, ports ...Port) bool {
	of, ok := l.holds[id]
	if !ok || of.For != "" {
		return false
	}
	h, has := l.Hold(IDOf(pod))
	if !has || h.Node != of.Node || h.Reason == Reservation {
		// Until the pod gives it back, its part is for no other pod, not even for those that may
		// use what is left.
		h = Hold{
			For: pod, Node: of.Node, Reason: Reservation, Priority: of.Priority, Pods: 1, Request: request, Ports: ports,
			Holder: Holder{Profile: of.Holder.Profile, Group: SinglePod(pod)},
		}
	}
	h.From = id
	l.Put(h)
	if h.Reason == Reservation {
		l.settle(IDOf(pod))
	}
	return l.holds[IDOf(pod)].From == id
}

// Return gives back what pods have taken of holds. If a hold has ended, its part is free. A place
// in a plan or a nomination ends otherwise, and gives back its part then.
func (l *Ledger) Return(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		if h, ok := l.Hold(IDOf(pod)); ok && h.Reason == Reservation {
			l.Drop(h.ID)
			c.Freed = append(c.Freed, h.Node) // for the pods that may use the hold, at least
		}
	}
	return c
}

// Left returns what pods have not taken of a hold; nothing if there is no such hold.
func (l *Ledger) Left(id ID) Taken {
	left := Taken{Request: resource.Vector{}}
	left.add(l.holds[id].left, 1)
	return left
}

// Part returns what a pod has taken of a hold; nothing if it has no part of it.
func (l *Ledger) Part(id ID, pod types.UID) Taken {
	if e, ok := l.holds[IDOf(pod)]; ok && e.From == id {
		return e.part
	}
	return Taken{}
}

// settle ends the hold of a pod that is counted on its node, except for what the pod has taken of
// another hold: that it gives back later.
func (l *Ledger) settle(id ID) {
	e := l.holds[id]
	if e.From == "" {
		l.Drop(id)
		return
	}
	h := e.Hold
	h.Reason, h.Made, h.Recalled, h.Claim = Reservation, false, false, 0
	h.Pods, h.Request, h.Ports = e.part.Pods, e.part.Request, e.part.Ports
	l.Put(h)
}

// take takes a part for a hold of the hold in its From: of each amount no more than is left.
func (l *Ledger) take(h Hold) Taken {
	from, ok := l.holds[h.From]
	if h.From == "" || !ok || from.For != "" || from.Node != h.Node {
		return Taken{}
	}
	part := from.left.Part(Taken{Pods: h.Pods, Request: h.Request, Ports: h.Ports})
	l.shift(from, part, -1)
	return part
}

// Part returns as much of an amount as there is.
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

// Minus returns what is left without the other, which is a part of it.
func (t Taken) Minus(other Taken) Taken { return t.with(other, -1) }

func (t Taken) with(other Taken, by int) Taken {
	sum := Taken{Pods: t.Pods, Request: resource.Vector{}, Ports: slices.Clone(t.Ports)}
	sum.Request.Add(t.Request, 1)
	sum.add(other, by)
	return sum
}

// give gives back what a hold has taken of another hold.
func (l *Ledger) give(e entry) {
	if from, ok := l.holds[e.From]; ok && e.From != "" {
		l.shift(from, e.part, 1)
	}
}

// shift records that more is left of a hold, or with -1 less.
func (l *Ledger) shift(of entry, part Taken, by int) {
	of.left = of.left.with(part, by)
	l.holds[of.ID] = of
	l.add(l.nodes[of.Node], of.Holder, part, by)
}

// detach makes a hold a part of none. What it took is its own.
func (l *Ledger) detach(id ID) {
	e := l.holds[id]
	l.notePart(e, false)
	e.From, e.part = "", Taken{}
	l.holds[id] = e
}

// notePart keeps track of which holds have parts of which.
func (l *Ledger) notePart(e entry, has bool) {
	switch {
	case e.From == "":
	case has && l.parts[e.From] == nil:
		l.parts[e.From] = map[ID]bool{e.ID: true}
	case has:
		l.parts[e.From][e.ID] = true
	default:
		if delete(l.parts[e.From], e.ID); len(l.parts[e.From]) == 0 {
			delete(l.parts, e.From)
		}
	}
}

// takers returns the holds that have parts of a hold, by ID.
func (l *Ledger) takers(id ID) []Hold {
	if of, ok := l.holds[id]; !ok || of.For != "" {
		return nil // no hold takes a part of a pod's hold
	}
	var found []Hold
	for part := range l.parts[id] {
		found = append(found, l.holds[part].Hold)
	}
	slices.SortFunc(found, func(a, b Hold) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// takenFrom returns what each hold of a plan takes a part of: its own From, or the hold that its
// pod has a part of on that node already.
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
