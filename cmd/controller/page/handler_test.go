package page

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// filter lets the token reader in, and tenants get what is theirs; it knows stranger, and refuses all others.
func filter(_ logr.Logger, handler http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer reader":
			handler.ServeHTTP(w, r)
		case "Bearer red", "Bearer blue":
			name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			if r.URL.Path != minePath {
				http.Error(w, "Forbidden", http.StatusForbidden)
				return
			}
			handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name})))
		case "Bearer stranger":
			http.Error(w, "Forbidden", http.StatusForbidden)
		default:
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		}
	}), nil
}

// fixture is a page of some objects.
type fixture struct {
	handler http.Handler
	page    *Page
	client  client.Client
	clock   *testingclock.FakeClock
	lists   map[string]int // how often each kind was listed
	fail    error          // the error of listing Nodes
	rights  map[string]int // what users may list, and how often that was asked
	silent  error          // the error of asking that
}

// mayList answers what users may list: "USER RESOURCE NAMESPACE".
func (f *fixture) mayList(_ context.Context, caller user.Info, resource schema.GroupResource, namespace string) (bool, error) {
	key := strings.TrimSpace(fmt.Sprint(caller.GetName(), " ", resource, " ", namespace))
	_, allowed := f.rights[key]
	if allowed {
		f.rights[key]++
	}
	return allowed, f.silent
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{clock: testingclock.NewFakeClock(epoch), lists: map[string]int{}}
	f.client = fakeapi.New(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			switch list.(type) {
			case *v1.NodeList:
				f.lists["nodes"]++
				if f.fail != nil {
					return f.fail
				}
			case *schedulingv1beta1.PodGroupList: // is not served
				return &meta.NoKindMatchError{}
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	f.page = New(f.client, f.clock, nil)
	var err error
	if f.handler, err = f.page.Handler(logr.Discard(), filter, f.mayList); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) request(method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w.Result()
}

const authorization = "Authorization"

// TestWhoIsServed: data are for callers that pass the filter, however the path is written; the files are for everyone.
func TestWhoIsServed(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", overviewPath, "", http.StatusUnauthorized},
		{"GET", overviewPath, "Bearer forged", http.StatusUnauthorized},
		{"GET", overviewPath, "Bearer stranger", http.StatusForbidden},
		{"GET", overviewPath, "Bearer reader", http.StatusOK},
		{"HEAD", overviewPath, "", http.StatusUnauthorized},
		{"GET", historyPath, "", http.StatusUnauthorized},
		{"GET", historyPath, "Bearer stranger", http.StatusForbidden},
		{"GET", historyPath, "Bearer reader", http.StatusOK},
		{"GET", minePath, "", http.StatusUnauthorized},
		{"GET", minePath, "Bearer stranger", http.StatusForbidden},
		{"GET", minePath, "Bearer red", http.StatusOK},
		{"GET", overviewPath, "Bearer red", http.StatusForbidden},
		{"GET", overviewPath + "?token=reader", "", http.StatusUnauthorized},
		{"GET", overviewPath + "/", "", http.StatusNotFound},
		{"GET", "//overview", "", http.StatusTemporaryRedirect},
		{"POST", overviewPath, "Bearer reader", http.StatusMethodNotAllowed},
		{"DELETE", overviewPath, "Bearer reader", http.StatusMethodNotAllowed},
		{"POST", "/", "", http.StatusMethodNotAllowed},
		{"GET", "/", "", http.StatusOK},
		{"GET", "/main.js", "", http.StatusOK},
		{"GET", "/handler.go", "", http.StatusNotFound},
		{"GET", "/../handler.go", "", http.StatusTemporaryRedirect},
	} {
		response := f.request(c.method, c.path, authorization, c.token)
		if response.StatusCode != c.want {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.token, response.StatusCode, c.want)
		}
		if got := response.Header.Get("Content-Security-Policy"); got != policy {
			t.Errorf("%s %s has the policy %q", c.method, c.path, got)
		}
	}
}

// TestDataAreMadeOnceASecond: however many ask, and not at all for callers that have them.
func TestDataAreMadeOnceASecond(t *testing.T) {
	f := newFixture(t)
	etag := ""
	for range 5 {
		response := f.request("GET", overviewPath, authorization, "Bearer reader")
		if etag = response.Header.Get("ETag"); etag == "" {
			t.Fatal("data have no ETag")
		}
	}
	if f.lists["nodes"] != 1 {
		t.Errorf("nodes are listed %d times in a second, want once", f.lists["nodes"])
	}
	has := func(want int) {
		t.Helper()
		f.clock.Step(reuse)
		if got := f.request("GET", overviewPath, authorization, "Bearer reader", "If-None-Match", etag).StatusCode; got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	has(http.StatusNotModified)
	must.Succeed(t, f.client.Create(t.Context(), node("n1", "r1", true)))
	has(http.StatusOK)
	if f.lists["nodes"] != 3 {
		t.Errorf("nodes are listed %d times in three seconds, want three times", f.lists["nodes"])
	}
}

// TestWhatCannotBeRead: it is an error, not an empty cluster, and the caller does not get the cause.
func TestWhatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.fail = errors.New("cache of secret-cluster is broken")
	for range 2 {
		response := f.request("GET", overviewPath, authorization, "Bearer reader")
		body, err := io.ReadAll(response.Body)
		must.Succeed(t, err)
		if response.StatusCode != http.StatusServiceUnavailable || strings.Contains(string(body), "secret") {
			t.Errorf("%d %s, want %d and no cause", response.StatusCode, body, http.StatusServiceUnavailable)
		}
	}
	if f.lists["nodes"] != 1 {
		t.Errorf("nodes are listed %d times in a second, want once", f.lists["nodes"])
	}
	f.fail = nil
	f.clock.Step(reuse)
	if got := f.request("GET", overviewPath, authorization, "Bearer reader").StatusCode; got != http.StatusOK {
		t.Errorf("%d when it can be read again", got)
	}
}

// TestCompressed: both forms are the same data.
func TestCompressed(t *testing.T) {
	f := newFixture(t, node("n1", "r1", true))
	plain := f.request("GET", overviewPath, authorization, "Bearer reader")
	zipped := f.request("GET", overviewPath, authorization, "Bearer reader", "Accept-Encoding", "gzip")
	if got := zipped.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("the encoding is %q", got)
	}
	unzip, err := gzip.NewReader(zipped.Body)
	must.Succeed(t, err)
	a, errA := io.ReadAll(plain.Body)
	b, errB := io.ReadAll(unzip)
	if errA != nil || errB != nil || string(a) != string(b) || !json.Valid(a) {
		t.Errorf("%s (%v), and unzipped %s (%v)", a, errA, b, errB)
	}
}

// TestHistoryIsServed: the history has what was sampled.
func TestHistoryIsServed(t *testing.T) {
	f := newFixture(t, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.QueueStatus{Deserved: cpus("4"), Allocated: cpus("3")}})
	for range 2 {
		must.Succeed(t, f.page.Sample(t.Context()))
		f.clock.Step(sampleEvery)
	}
	body, err := io.ReadAll(f.request("GET", historyPath, authorization, "Bearer reader").Body)
	must.Succeed(t, err)
	const want = `{"times":[1900000000,1900000010],"series":[{"queue":"a","resource":"cpu","deserved":[4,4],"allocated":[3,3]}],"leftOut":0}`
	if string(body) != want {
		t.Errorf("history %s, want %s", body, want)
	}
}

// TestSampler: it samples at once, then in steps, and ends with its context.
func TestSampler(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- sampler{f.page}.Start(ctx) }()
	samples := func(want int) {
		t.Helper()
		await.NoError(t, "queues are noted", func() error {
			f.page.mu.Lock()
			defer f.page.mu.Unlock()
			if got := len(f.page.history.Times); got != want {
				return fmt.Errorf("%d samples, want %d", got, want)
			}
			return nil
		})
	}
	samples(1)
	f.clock.Step(sampleEvery)
	samples(2)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestFilesLoadNothingElse: no file of the page names another server, and none has code or style that the policy
// forbids.
func TestFilesLoadNothingElse(t *testing.T) {
	count := 0
	err := fs.WalkDir(assets, "assets", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := assets.ReadFile(path)
		if err != nil {
			return err
		}
		count++
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "localStorage", "sessionStorage", "document.cookie", " style=", "onclick="} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
		return nil
	})
	if err != nil || count < 5 {
		t.Errorf("%d files are found, %v", count, err)
	}
	if !slices.Contains(strings.Fields(policy), "'none';") {
		t.Error("the policy forbids nothing")
	}
}

// TestDevicesOfThePage: the topology shows devices by claims, and follows what drivers publish.
func TestDevicesOfThePage(t *testing.T) {
	member := dra.Pod("p", "two")
	member.Spec.NodeName, member.Annotations = "n1", map[string]string{v1alpha1.GangNameAnnotation: "train"}
	slice := dra.Slice("n1", 4)
	f := newFixture(t, node("n1", "r1", true), member, slice, dra.Class(), dra.Held(dra.Claim("two", 2), "n1", 0, "p"))
	for _, total := range []int64{4, 3} {
		slice.Spec.Devices = slice.Spec.Devices[:total]
		must.Succeed(t, f.client.Update(t.Context(), slice))
		got, err := f.page.contents(t.Context())
		must.Succeed(t, err)
		if topology := got.(Contents).Topology; topology.Resource != dra.Backed || topology.Total != total || topology.Used != 2 {
			t.Errorf("of %s %d of %d are used, want 2 of %d of %s", topology.Resource, topology.Used, topology.Total, total, dra.Backed)
		}
	}
}
