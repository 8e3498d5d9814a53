package reservepods

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// story is what happens to pods of an API server and of a store, while an informer follows.
type story struct {
	*testing.T
	random   *rand.Rand
	api      *api
	store    *Store
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// made and seen are what became of each reserve pod, by UID: its versions, in order.
	made, seen map[types.UID][]string
	// early is how many of its versions a pod had when the first list was there.
	early map[types.UID]int
	uids  int
}

const deleted = "deleted"

func newStory(t *testing.T, seed uint64, first int64) *story {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &story{T: t, random: random, api: newAPI(rand.New(rand.NewPCG(seed, 1)), first), store: NewStore(), made: map[types.UID][]string{}, seen: map[types.UID][]string{}, early: map[types.UID]int{}}
	s.api.pageSize = []int{0, 0, 2}[random.IntN(3)]
	s.api.unstreamed, s.api.refuses = random.IntN(3) == 0, random.IntN(3) == 0
	s.store.watch(func(e watch.Event) { s.note(s.made, e.Object, e.Type == watch.Deleted) })
	return s
}

// begin starts an informer.
func (s *story) begin(ctx context.Context) {
	s.informer = cache.NewSharedIndexInformer(NewListWatch(s.api, s.store), &v1.Pod{}, 0, cache.Indexers{})
	if _, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { s.note(s.seen, object, false) },
		UpdateFunc: func(before, object any) {
			if pod := object.(*v1.Pod); IsReservePod(pod) && before.(*v1.Pod).UID != pod.UID {
				s.Errorf("pod %s becomes another of its name: its end was left out", pod.Name)
			}
			s.note(s.seen, object, false)
		},
		DeleteFunc: func(object any) { s.note(s.seen, object, true) },
	}); err != nil {
		s.Fatal(err)
	}
	// The usual handler keeps a clock of the whole process, which is not that of the test.
	must.Succeed(s, s.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	go s.informer.RunWithContext(ctx)
	for !s.informer.HasSynced() {
		s.step()
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, made := range s.made {
		s.early[uid] = len(made)
	}
}

// note notes what became of a reserve pod. A handler may see again what it has seen.
func (s *story) note(of map[types.UID][]string, object any, gone bool) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		if unknown := object.(cache.DeletedFinalStateUnknown); reserved(unknown.Obj.(*v1.Pod).Name) {
			s.Errorf("the end of pod %s was left out", unknown.Key)
		}
		return
	}
	if !IsReservePod(pod) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	what := pod.ResourceVersion + " on " + strconv.Quote(pod.Spec.NodeName)
	if gone {
		what += " " + deleted
	}
	if versions := of[pod.UID]; len(versions) == 0 || versions[len(versions)-1] != what {
		of[pod.UID] = append(versions, what)
	}
}

// step makes one thing happen.
func (s *story) step() {
	real, reserve := fmt.Sprint("pod-", s.random.IntN(6)), PodName(fmt.Sprint("r", s.random.IntN(4)), 0)
	var err error
	switch s.random.IntN(18) {
	case 0, 1:
		s.api.put(real, func(before *v1.Pod) *v1.Pod {
			if before != nil {
				return nil
			}
			return st.MakePod().Namespace(ns).Name(real).UID(s.uid()).Obj()
		})
	case 2, 3:
		s.api.put(real, func(before *v1.Pod) *v1.Pod {
			if before == nil {
				return nil
			}
			now := before.DeepCopy()
			now.Spec.NodeName = fmt.Sprint("n", s.random.IntN(9))
			return now
		})
	case 4, 5, 6:
		err = s.store.Add(reservePod("").Name(reserve).UID(s.uid()).Obj())
	case 7, 8, 9:
		_, err = s.store.Patch(ns, reserve, strategic, conditionPatch(s, fmt.Sprint("no room ", s.random.IntN(3))), "status")
	case 10:
		err = s.store.Bind(ns, bindingOf(reserve, "n1"))
	case 11:
		if err = s.store.Bind(ns, bindingOf(reserve, "n2")); err == nil {
			err = s.store.Delete(ns, reserve, nil)
		}
	case 12:
		err = s.store.Delete(ns, reserve, nil)
	case 13: // many at once, while something happens to the connection
		var group sync.WaitGroup
		for i := range 4 {
			patch := conditionPatch(s, fmt.Sprint("at once ", i))
			group.Go(func() { _, _ = s.store.Patch(ns, reserve, strategic, patch, "status") })
			group.Go(func() { _ = s.store.Bind(ns, bindingOf(reserve, "n3")) })
		}
		s.trouble()
		group.Wait()
	default:
		s.trouble()
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		s.Error(err)
	}
}

// trouble makes something happen to the connection.
func (s *story) trouble() {
	switch s.random.IntN(8) {
	case 0, 1:
		s.api.cut()
	case 2:
		s.api.compact()
		s.api.cut()
	case 3:
		s.api.fail(apierrors.NewResourceExpired("gone"))
	case 4:
		s.api.fail(apierrors.NewInternalError(fmt.Errorf("in trouble")))
	case 5:
		s.api.mark()
	case 6:
		s.api.set(func() { s.api.listsFail = s.random.IntN(3) })
	case 7:
		s.api.set(func() { s.api.watchesFail = s.random.IntN(3) })
	}
}

func (s *story) uid() string {
	s.uids++
	return fmt.Sprint("uid-", s.uids)
}

// quiet waits until nothing happens any more, and checks what the informer has.
func (s *story) quiet() {
	s.Helper()
	time.Sleep(10 * time.Minute) // the longest pauses of a reflector in trouble are shorter
	synctest.Wait()
	s.api.mu.Lock()
	want := map[string]*v1.Pod{}
	for name, pod := range s.api.pods {
		want[ns+"/"+name] = pod
	}
	problems, revision := s.api.problems, s.api.given[s.informer.GetStore().LastStoreSyncResourceVersion()]
	s.api.mu.Unlock()
	s.store.mu.Lock()
	for name, pod := range s.store.pods {
		want[name.String()] = pod
	}
	s.store.mu.Unlock()
	got := map[string]*v1.Pod{}
	for _, object := range s.informer.GetStore().List() {
		got[cache.MetaObjectToName(object.(*v1.Pod)).String()] = object.(*v1.Pod)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("pods of the informer (-want +got):\n%s", diff)
	}
	if len(problems) > 0 {
		s.Errorf("the API server was asked for what it does not know: %q", problems)
	}
	if !revision {
		s.Errorf("the cache says that it has come to %s, which is no revision of the API server's", s.informer.GetStore().LastStoreSyncResourceVersion())
	}
	s.order()
}

// order checks that handlers saw of each reserve pod all that became of it, in order, from when they
// saw it first.
func (s *story) order() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(s.made)) {
		made, seen, from := s.made[uid], s.seen[uid], 0
		if early := s.early[uid]; early > 0 {
			from = early - 1
			if len(seen) > 0 {
				from = max(0, slices.Index(made[:early], seen[0]))
			} else if strings.HasSuffix(made[from], deleted) {
				continue // it came and went before the first list
			}
		}
		if diff := cmp.Diff(made[from:], seen); diff != "" {
			s.Errorf("what was seen of pod %s (-want +got):\n%s", uid, diff)
		}
	}
}

// A watch that is cut, lists that are paged, streamed or fail, and what expires change nothing about
// what an informer has in the end, nor about what its handlers see of reserve pods.
func TestInformerHasAllAndHandlersSeeAllInOrder(t *testing.T) {
	for _, first := range []int64{1, 1_000_000} { // as a store's own, and not
		for seed := range uint64(30) {
			t.Run(fmt.Sprintf("from %d, seed %d", first, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStory(t, seed, first)
					for range s.random.IntN(10) {
						s.step()
					}
					ctx, cancel := context.WithCancel(t.Context())
					s.begin(ctx)
					for range 6 {
						for range s.random.IntN(40) {
							s.step()
							switch s.random.IntN(4) {
							case 0:
								synctest.Wait()
							case 1:
								time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
							}
						}
						s.quiet()
						if t.Failed() {
							break
						}
					}
					cancel()
					synctest.Wait()
				})
			})
			if t.Failed() {
				return
			}
		}
	}
}
