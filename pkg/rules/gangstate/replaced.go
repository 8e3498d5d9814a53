package gangstate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// madeFor returns the UID of the owner for which the gang's PodGroup was made; empty if it was not made for
// one.
func (g *gang) madeFor() types.UID {
	if object := g.object(); object != nil {
		return object.Owner
	}
	return ""
}

// findReplaced looks at all members again when the PodGroup has got another owner, or an owner's newer attempt has
// begun. It returns the members for which that changes something. Succeeded members that were replaced no longer count.
func (s *Gangs) findReplaced(g *gang) []*member {
	i := &g.incarnation
	for uid, f := range i.finished {
		if i.replaces(f.origin) {
			i.drop(uid)
			delete(s.succeeded, uid)
		}
	}
	i.forgetGone(func(s *successes) bool { return i.replaces(s.one) })
	news := g.sorted(func(m *member) bool { return i.replaces(gangspec.OriginOf(m.pod)) != m.replaced })
	for _, m := range news {
		g.change(m, func() { m.replaced = !m.replaced })
		g.relive(m)
		if m.replaced {
			s.unreserveMember(m)
		}
	}
	return news
}

// relive brings the incarnation of the gang up to date with a member that has changed.
func (g *gang) relive(m *member) {
	if m.lives() {
		g.incarnation.live(m.pod)
	} else {
		g.incarnation.end(m.uid())
	}
}
