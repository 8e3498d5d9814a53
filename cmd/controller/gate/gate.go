package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// tryAgain is how often the API server is asked where it does not answer: twice, as browsers ask again themselves.
var tryAgain = &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1, Steps: 2}

// accessQPS and accessBurst bound how often it is asked what callers may do: one question for each namespace that a
// caller may see, once in a while.
const (
	accessQPS   = 200
	accessBurst = 500
)

// Gate lets callers through that the API server knows by their token, and lets get the path.
//
// It is no filter of controller-runtime, as that answers a wrong token with an internal error, and logs each.
type Gate struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
}

// New returns a gate that asks by TokenReview and SubjectAccessReview.
func New(config *rest.Config, httpClient *http.Client) (*Gate, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making the client of TokenReviews: %w", err)
	}
	often := rest.CopyConfig(config)
	often.QPS, often.Burst = accessQPS, accessBurst
	access, err := authorizationclient.NewForConfigAndClient(often, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making the client of SubjectAccessReviews: %w", err)
	}
	authentication, err := newAuthenticator(tokens, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: access, AllowCacheTTL: believe, DenyCacheTTL: disbelieve, WebhookRetryBackoff: tryAgain,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("preparing SubjectAccessReviews: %w", err)
	}
	return &Gate{authenticator: authentication, authorizer: authorization}, nil
}

// Filter returns a handler behind the gate. The context of its requests has the caller.
func (g *Gate) Filter(logger logr.Logger, handler http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known, err := g.authenticator.AuthenticateRequest(r)
		switch {
		case errors.Is(err, errBusy):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many tokens come that the API server has not known: try again", http.StatusTooManyRequests)
			return
		case unanswered(err):
			logger.Error(err, "Failed to ask the API server who calls")
			http.Error(w, "the API server does not say who you are", http.StatusServiceUnavailable)
			return
		case err != nil, !known:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the API server does not know you: send the token of a user or a service account",
				http.StatusUnauthorized)
			return
		}
		verb := strings.ToLower(r.Method)
		decision, _, err := g.authorizer.Authorize(r.Context(),
			authorizer.AttributesRecord{User: caller.User, Verb: verb, Path: r.URL.Path})
		switch {
		case decision == authorizer.DecisionAllow:
			handler.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller.User)))
		case err != nil:
			logger.Error(err, "Failed to ask the API server what the caller may do", "user", caller.User.GetName())
			http.Error(w, "the API server does not say whether you may see this", http.StatusServiceUnavailable)
		default:
			http.Error(w, fmt.Sprintf("user %q may not %s %s", caller.User.GetName(), verb, r.URL.Path), http.StatusForbidden)
		}
	}), nil
}

// MayList reports whether a user may list a resource in a namespace, or in all of the cluster if that is empty.
func (g *Gate) MayList(ctx context.Context, caller user.Info, resource schema.GroupResource,
	namespace string) (bool, error) {
	decision, _, err := g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: "list", APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource,
		Namespace: namespace, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether a user may list %s: %w", resource, err)
	}
	return false, nil
}

// unanswered reports whether an error means that the API server did not say whose token it is. An answer that the token
// is unknown is an error, too, but an answer.
func unanswered(err error) bool {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		for _, one := range several.Errors() {
			if unanswered(one) {
				return true
			}
		}
		return false
	}
	var status apierrors.APIStatus
	var network *url.Error
	return errors.As(err, &status) || errors.As(err, &network)
}
