package registry

import (
	"fmt"
	"testing"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestAskedWhileRegistering: watches read the registry while profiles are still being registered.
func TestAskedWhileRegistering(t *testing.T) {
	s := newStage(t, "one")
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for range 1000 {
			s.PodGroups("one", gangspec.Key{})
		}
	}()
	for i := range 100 {
		s.Register(named{name: fmt.Sprint("profile-", i)}, gangspec.Defaults{}, gangstate.Backoff{}, nil)
	}
	<-asked
	if got := len(s.all()); got != 101 {
		t.Errorf("%d profiles are registered, want 101", got)
	}
}

// named is a framework handle of which only the name is used.
type named struct {
	fwk.Handle
	name string
}

func (n named) ProfileName() string { return n.name }

// TestWithoutProfiles: where no profile has gangs, nothing is watched.
func TestWithoutProfiles(t *testing.T) {
	must.Succeed(t, New(ledger.New(), nil, watches.New()).Start(t.Context()))
}
