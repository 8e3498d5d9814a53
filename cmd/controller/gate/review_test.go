package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// path is what is asked for.
const path = "/overview"

// reviews is a page behind an API server that knows some tokens, and counts what it is asked.
type reviews struct {
	page  http.Handler
	clock *testingclock.FakeClock
	known map[string]bool
	asked map[string]int
	fail  error // what comes instead of an answer
}

func newReviews(t *testing.T, known ...string) *reviews {
	t.Helper()
	r := &reviews{clock: testingclock.NewFakeClock(time.Unix(1_900_000_000, 0)), known: map[string]bool{}, asked: map[string]int{}}
	for _, token := range known {
		r.known[token] = true
	}
	server := httptest.NewServer(http.HandlerFunc(r.review))
	t.Cleanup(server.Close)
	client, err := authenticationclient.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	must.Succeed(t, err)
	authentication, err := newAuthenticator(client, r.clock)
	must.Succeed(t, err)
	g := &Gate{authenticator: authentication, authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})}
	if r.page, err = g.Filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data") })); err != nil {
		t.Fatal(err)
	}
	return r
}

// review answers as the API server does.
func (r *reviews) review(w http.ResponseWriter, request *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.asked[review.Spec.Token]++ // one request at a time
	review.Status.Error = "invalid bearer token"
	if r.known[review.Spec.Token] {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "ann"}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review) // the test sees that it did not come
}

func (r *reviews) get(token string) *http.Response {
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, request)
	return w.Result()
}

// flood sends so many unknown tokens, and returns how often each status came.
func (r *reviews) flood(t *testing.T, first, n int) map[int]int {
	t.Helper()
	codes := map[int]int{}
	for i := range n {
		response := r.get(fmt.Sprintf("forged-%d", first+i))
		codes[response.StatusCode]++
		if busy := response.StatusCode == http.StatusTooManyRequests; busy != (response.Header.Get("Retry-After") == "1") {
			t.Errorf("%s has Retry-After %q", response.Status, response.Header.Get("Retry-After"))
		}
	}
	return codes
}

// TestFlood: any number of tokens costs the API server a bounded number of reviews, and keeps out no caller that was
// let in.
func TestFlood(t *testing.T) {
	r := newReviews(t, "anns")
	if code := r.get("anns").StatusCode; code != http.StatusOK {
		t.Fatalf("a good token is answered %d", code)
	}
	const left = reviewBurst - 1
	if diff := cmp.Diff(map[int]int{http.StatusUnauthorized: left, http.StatusTooManyRequests: 1000 - left}, r.flood(t, 0, 1000)); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if len(r.asked) != reviewBurst {
		t.Errorf("%d tokens were reviewed, want %d", len(r.asked), reviewBurst)
	}
	r.clock.Step(2 * time.Second)
	if diff := cmp.Diff(map[int]int{http.StatusUnauthorized: 2 * reviewQPS, http.StatusTooManyRequests: 100 - 2*reviewQPS}, r.flood(t, 1000, 100)); diff != "" {
		t.Errorf("answers 2 seconds later (-want +got):\n%s", diff)
	}
	if code := r.get("anns").StatusCode; code != http.StatusOK {
		t.Errorf("during the flood a token that was let in is answered %d", code)
	}
}

// reviewer answers as the API server does, without a cache.
type reviewer struct{ *reviews }

// AuthenticateToken implements authenticator.Token.
func (r reviewer) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	switch {
	case r.fail != nil:
		return nil, false, r.fail
	case !r.known[token]:
		return nil, false, errors.New("invalid bearer token")
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
}

// TestTokenLimiter: a token that the API server has known once does not wait for others, until it is not known any
// more.
func TestTokenLimiter(t *testing.T) {
	r := newReviews(t, "anns")
	gone := &url.Error{Op: "Post", Err: errors.New("refused")}
	s := newTokenLimiter(reviewer{r}, r.clock)
	try := func(token string) string {
		_, known, err := s.AuthenticateToken(t.Context(), token)
		return fmt.Sprint(known, " ", err)
	}
	exhaust := func() {
		for s.limit.TryAccept() {
		}
	}
	for _, step := range []struct {
		sentence string
		before   func()
		token    string
		want     string
	}{
		{"one that is nobody's is no error", nil, "forged", "false <nil>"},
		{"a good one", nil, "anns", "true <nil>"},
		{"a new one is not asked about when too many come", exhaust, "bobs", "false too many unknown tokens"},
		{"one that was good is", nil, "anns", "true <nil>"},
		{"that there is no answer is an error", func() { r.fail = gone }, "anns", "false " + gone.Error()},
		{"and does not count against it", func() { r.fail = nil }, "anns", "true <nil>"},
		{"that it took too long does not, either", func() { r.fail = context.DeadlineExceeded }, "anns", "false context deadline exceeded"},
		{"one that is not known any more", func() { r.fail, r.known = nil, nil }, "anns", "false <nil>"},
		{"is like any other", nil, "anns", "false too many unknown tokens"},
		{"a second later there is room", func() { r.clock.Step(time.Second) }, "anns", "false <nil>"},
	} {
		if step.before != nil {
			step.before()
		}
		if got := try(step.token); got != step.want {
			t.Errorf("%s: %s, want %s", step.sentence, got, step.want)
		}
	}
}

// TestTokensAreRemembered: a token that comes again, good or not, is not reviewed again at once.
func TestTokensAreRemembered(t *testing.T) {
	r := newReviews(t, "anns")
	for range 5 {
		r.get("anns")
		r.get("forged")
	}
	if diff := cmp.Diff(map[string]int{"anns": 1, "forged": 1}, r.asked); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
}
