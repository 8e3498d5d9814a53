package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

const (
	// maxCallers is for how many users it is remembered what they see, and remember for how long.
	maxCallers = 1000
	remember   = time.Minute
)

// MayList reports whether a user may list a resource in a namespace, or in all of the cluster if that is empty.
type MayList = func(ctx context.Context, caller user.Info, resource schema.GroupResource,
	namespace string) (bool, error)

// perCaller serves each caller the part of the overview that is theirs: gangs and migrations of the namespaces in which
// they may list pods, and the queues if they may list these. Nodes, Reservations and plans are of the whole cluster.
type perCaller struct {
	overview *document
	mayList  MayList

	mu    sync.Mutex
	known *cache.LRUExpireCache // namespaceAccess by caller
}

func newMine(overview *document, mayList MayList) *perCaller {
	return &perCaller{overview: overview, mayList: mayList,
		known: cache.NewLRUExpireCacheWithClock(maxCallers, overview.clock)}
}

// namespaceAccess is what a caller may see. One request at a time asks for it.
type namespaceAccess struct {
	mu sync.Mutex
	// asked: queues is known.
	asked bool
	// namespaces has whether the caller may list pods there, for those that were asked about.
	namespaces map[string]bool
	queues     bool
	// shown is what was last made for the caller, of the overview in from: requests of one caller share it.
	shown, from *encoded
}

// ServeHTTP implements http.Handler.
func (m *perCaller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := m.read(r.Context())
	serve(w, r, e, err)
}

func (m *perCaller) read(ctx context.Context) (*encoded, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, errors.New("the request has no caller")
	}
	whole, err := m.overview.get(ctx)
	if err != nil {
		return nil, err
	}
	all, ok := whole.value.(Contents)
	if !ok {
		return nil, fmt.Errorf("the overview is a %T", whole.value)
	}
	return m.part(ctx, caller, whole, all)
}

// part returns what a caller may see of an overview. It asks again after a while.
func (m *perCaller) part(ctx context.Context, caller user.Info, whole *encoded, all Contents) (*encoded, error) {
	key, err := json.Marshal([]any{caller.GetName(), caller.GetUID(), caller.GetGroups(), caller.GetExtra()})
	if err != nil {
		return nil, fmt.Errorf("encoding a user: %w", err)
	}
	s := m.accessOf(string(key))
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !s.asked {
		if s.queues, err = m.mayList(ctx, caller, schema.GroupResource{Group: "scheduling.lockstep.dev", Resource: "queues"},
			""); err != nil {
			return nil, err
		}
		s.asked = true
	}
	for namespace := range namespacesOf(all) {
		if _, asked := s.namespaces[namespace]; asked {
			continue
		}
		if s.namespaces[namespace], err = m.mayList(ctx, caller, schema.GroupResource{Resource: "pods"},
			namespace); err != nil {
			delete(s.namespaces, namespace)
			return nil, err
		}
	}
	if s.from != whole {
		if s.shown, err = encode(s.of(all)); err != nil {
			return nil, err
		}
		s.from = whole
	}
	return s.shown, nil
}

// accessOf returns what is known of a caller.
func (m *perCaller) accessOf(key string) *namespaceAccess {
	m.mu.Lock()
	defer m.mu.Unlock()
	if found, ok := m.known.Get(key); ok {
		return found.(*namespaceAccess) //nolint:errcheck // nothing else is in it
	}
	s := &namespaceAccess{namespaces: map[string]bool{}}
	m.known.Add(key, s, remember)
	return s
}

// namespacesOf returns the namespaces of all that is in one.
func namespacesOf(all Contents) sets.Set[string] {
	names := sets.New[string]()
	for i := range all.Gangs {
		names.Insert(all.Gangs[i].Namespace)
	}
	for i := range all.Migrations {
		names.Insert(all.Migrations[i].Namespace)
	}
	return names
}

// part is what is shown of a scope.
type part struct {
	Gangs      []Gang           `json:"gangs"`
	Queues     []view.Queue     `json:"queues"`
	Migrations []view.Migration `json:"migrations"`
}

// of returns what is in the scope.
func (s *namespaceAccess) of(all Contents) *part {
	p := &part{Queues: []view.Queue{}}
	p.Gangs = slices.DeleteFunc(slices.Clone(all.Gangs), func(g Gang) bool { return !s.namespaces[g.Namespace] })
	p.Migrations = slices.DeleteFunc(slices.Clone(all.Migrations), func(m view.Migration) bool {
		return !s.namespaces[m.Namespace]
	})
	if s.queues {
		p.Queues = all.Queues
	}
	return p
}
