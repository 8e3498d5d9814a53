package histories

import "slices"

// shrink returns a smaller history that fails, too: first steps are left out, then what is asked for gets less. fails
// reports whether a history fails in the same way.
func (h *History) shrink(fails func(*History) bool) *History {
	for again := true; again; {
		again = false
		for n := max(1, len(h.Steps)/2); n >= 1; n /= 2 {
			for at := 0; at+n <= len(h.Steps); {
				if less := h.without(at, n); fails(less) {
					h, again = less, true
				} else {
					at += n
				}
			}
		}
		for at := range h.Steps {
			for _, simplify := range simpler {
				if less := h.clone(); simplify(&less.Steps[at]) && fails(less) {
					h, again = less, true
				}
			}
		}
	}
	return h
}

func (h *History) without(at, n int) *History {
	less := h.clone()
	less.Steps = slices.Delete(less.Steps, at, at+n)
	return less
}

// clone copies a history and its steps, but for what shrink does not change.
func (h *History) clone() *History {
	copied := *h
	copied.Steps = slices.Clone(h.Steps)
	for i := range copied.Steps {
		s := &copied.Steps[i]
		s.Gang, s.Pod, s.Node = copyOf(s.Gang), copyOf(s.Pod), copyOf(s.Node)
	}
	return &copied
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	copied := *p
	return &copied
}

// simpler make a step simpler, and return false where they cannot.
var simpler = []func(*Step) bool{
	func(s *Step) bool { ok := s.Soon != nil; s.Soon = nil; return ok },
	gangs(func(g *Gang) bool { ok := g.Preferred; g.Preferred = false; return ok }),
	gangs(func(g *Gang) bool { ok := g.Required; g.Required = false; return ok }),
	gangs(func(g *Gang) bool { ok := g.NonStrict; g.NonStrict = false; return ok }),
	gangs(func(g *Gang) bool { ok := g.PodGroup; g.PodGroup = false; return ok }),
	gangs(func(g *Gang) bool { ok := g.Again; g.Again = false; return ok }),
	gangs(func(g *Gang) bool { ok := g.Priority > 0; g.Priority = 0; return ok }),
	gangs(func(g *Gang) bool { ok := g.Members > g.Min; g.Members = g.Min; return ok }),
	gangs(func(g *Gang) bool { ok := g.Min > 1; g.Min--; g.Members--; return ok }),
	gangs(func(g *Gang) bool { ok := g.GPUs > 1; g.GPUs /= 2; return ok }),
	func(s *Step) bool {
		ok := s.Pod != nil && s.Pod.GPUs > 1
		if ok {
			s.Pod.GPUs /= 2
		}
		return ok
	},
	func(s *Step) bool {
		ok := s.Node != nil && s.Node.GPUs > 1
		if ok {
			s.Node.GPUs /= 2
		}
		return ok
	},
}

func gangs(change func(*Gang) bool) func(*Step) bool {
	return func(s *Step) bool { return s.Gang != nil && change(s.Gang) }
}
