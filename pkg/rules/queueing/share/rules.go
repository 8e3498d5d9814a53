package share

// Rules say which parts of a queue's description count for what it deserves. (The choice between
// the proportion and capacity plugins of Volcano, the kube-batch framework's successor; here both
// may be chosen.)
type Rules struct {
	// Stated: the deserved amounts that the queue's owner states count (policy capacity).
	Stated bool
	// Weighted: of what is not stated it deserves a part by weight (policy proportion);
	// otherwise what it is guaranteed.
	Weighted bool
}

// Entitled returns the resources of which a queue is entitled to a stated amount, for
// [Queue.Deserved].
func (r Rules) Entitled(total, deserved, guarantee Vector) Vector {
	switch {
	case r.Weighted && r.Stated:
		return deserved
	case r.Weighted:
		return nil
	}
	stated := Vector{}
	for name := range total {
		stated[name] = guarantee[name]
		if amount, ok := deserved[name]; ok && r.Stated {
			stated[name] = amount
		}
	}
	return stated
}
