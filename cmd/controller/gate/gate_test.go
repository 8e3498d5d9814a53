package gate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestGate: a caller gets through only if the API server says that it may, and a wrong token is not a broken server.
func TestGate(t *testing.T) {
	allowed := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ann"}, Verb: "get", Path: path}
	several := func(err error) error { return utilerrors.NewAggregate([]error{errors.New("one"), err}) }
	for sentence, c := range map[string]struct {
		user         string
		known        bool
		unknown      error // what is wrong with the caller's identity
		unauthorized error // what is wrong with the caller's rights
		want         int
		body         string
	}{
		"without a token":                           {want: http.StatusUnauthorized, body: "does not know you"},
		"with a wrong token":                        {unknown: several(errors.New("invalid bearer token")), want: http.StatusUnauthorized, body: "does not know you"},
		"the API server is not there":               {unknown: several(&url.Error{Op: "Post", Err: errors.New("refused")}), want: http.StatusServiceUnavailable},
		"the controller may not ask":                {unknown: apierrors.NewInternalError(errors.New("no")), want: http.StatusServiceUnavailable},
		"who may":                                   {user: "ann", known: true, want: http.StatusOK, body: "data"},
		"who may not":                               {user: "bob", known: true, want: http.StatusForbidden, body: `user "bob" may not get /overview`},
		"of whom it is not said":                    {user: "bob", known: true, unauthorized: errors.New("no answer"), want: http.StatusServiceUnavailable},
		"who is named, and not known all the same":  {user: "ann", want: http.StatusUnauthorized},
		"who is known, and something is wrong, too": {user: "ann", known: true, unknown: errors.New("wrong"), want: http.StatusUnauthorized},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := &Gate{
				authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
					return &authenticator.Response{User: &user.DefaultInfo{Name: c.user}}, c.known, c.unknown
				}),
				authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					if a.GetUser().GetName() == "ann" && a.GetVerb() == allowed.Verb && a.GetPath() == allowed.Path && !a.IsResourceRequest() {
						return authorizer.DecisionAllow, "", nil
					}
					return authorizer.DecisionNoOpinion, "", c.unauthorized
				}),
			}
			handler, err := g.Filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if caller, ok := request.UserFrom(r.Context()); !ok || caller.GetName() != c.user {
					t.Errorf("the caller is %v", caller)
				}
				io.WriteString(w, "data")
			}))
			must.Succeed(t, err)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if body := w.Body.String(); w.Code != c.want || !strings.Contains(body, c.body) {
				t.Errorf("%d %q, want %d and %q in it", w.Code, body, c.want, c.body)
			}
		})
	}
}

// TestMayList: what is asked is a list in the namespace, by the user; that there is no answer is an error.
func TestMayList(t *testing.T) {
	for sentence, c := range map[string]struct {
		decision authorizer.Decision
		err      error
		want     bool
	}{
		"who may":                {decision: authorizer.DecisionAllow, want: true},
		"who may not":            {decision: authorizer.DecisionNoOpinion},
		"who must not":           {decision: authorizer.DecisionDeny},
		"of whom it is not said": {decision: authorizer.DecisionNoOpinion, err: errors.New("no answer")},
	} {
		t.Run(sentence, func(t *testing.T) {
			ann := &user.DefaultInfo{Name: "ann"}
			g := &Gate{authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser() != user.Info(ann) || a.GetVerb() != "list" || a.GetAPIGroup() != "g" || a.GetResource() != "pods" || a.GetNamespace() != "n" || !a.IsResourceRequest() {
					t.Errorf("asked about %+v", a)
				}
				return c.decision, "", c.err
			})}
			got, err := g.MayList(t.Context(), ann, schema.GroupResource{Group: "g", Resource: "pods"}, "n")
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%t, %v; want %t, %v", got, err, c.want, c.err)
			}
		})
	}
}
