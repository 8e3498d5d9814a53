package queueing

// giveTurns gives turns as long as there are any, as a caller does that lets several in at once, and adds the pods that are
// called to the effects of an input; except is a job whose pod is on its way.
func (b *Book) giveTurns(at Moment, except string, e Effects) called {
	c := called{Call: e.Call, Again: e.Again, Retry: e.Retry, Freed: e.Freed}
	for {
		next, ok, more := b.First(at, false)
		c.Call = append(c.Call, more.Call...)
		if !ok {
			return c
		}
		pod, began := b.Admit(next.Name, at)
		c.Began = append(c.Began, began)
		if next.Name != except {
			c.Call = append(c.Call, pod)
		}
	}
}

// called is the effects of an input, and the turns that began then.
type called struct {
	Call         []string
	Began        []Began
	Again, Retry bool
	Freed        []string
}

func (b *Book) Look(at Moment) called { return b.giveTurns(at, "", Effects{}) }

func (b *Book) Come(offered Job, at Moment) called {
	b.Offer(offered, at)
	return b.giveTurns(at, offered.Name, b.take())
}

func (b *Book) failNow(pod string, how Failure, at Moment) called {
	return b.giveTurns(at, "", b.Fail(pod, how, at))
}
func (b *Book) goneNow(pod string, at Moment) called { return b.giveTurns(at, "", b.Gone(pod, at)) }
func (b *Book) tickNow(at Moment) called             { return b.giveTurns(at, "", b.Tick(at)) }

// admitNext gives the next job its turn, and returns it; false if there is none.
func (b *Book) admitNext() (Job, bool) {
	next := b.next()
	if next == nil {
		return Job{}, false
	}
	b.Admit(next.Name, Moment{})
	return next.offered(), true
}
