package gate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

const (
	// reviewTimeout is how long the API server may take to say which user calls.
	reviewTimeout = 10 * time.Second
	// believe is how long an answer of the API server about a caller counts: a caller who has lost his rights keeps them
	// for so long. disbelieve is the same for unknown tokens, and for callers that may not get the path.
	believe    = time.Minute
	disbelieve = believe / 6

	// reviewQPS and reviewBurst bound how often it is asked about tokens that were never good: any client that reaches the
	// port can send any number of them.
	reviewQPS   = 5
	reviewBurst = 50
	// acquaintances is how many good tokens are remembered, for the time remember: a caller with one is not kept out by
	// others.
	acquaintances = 1000
	remember      = 24 * time.Hour
)

// errBusy means that too many tokens came of which none was good before.
var errBusy = errors.New("too many unknown tokens")

// newAuthenticator returns an authenticator that knows callers by TokenReviews of their bearer tokens.
func newAuthenticator(tokens authenticationclient.AuthenticationV1Interface,
	c clock.PassiveClock) (authenticator.Request, error) {
	authenticatorfactory.RegisterMetrics()
	reviewer, err := webhook.NewFromInterface(tokens, nil, *tryAgain, reviewTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal:   authenticatorfactory.RecordRequestTotal,
		RecordRequestLatency: authenticatorfactory.RecordRequestLatency,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing TokenReviews: %w", err)
	}
	known := tokencache.New(newTokenLimiter(reviewer, c), false, believe, disbelieve)
	return group.NewAuthenticatedGroupAdder(bearertoken.New(known)), nil
}

// tokenLimiter lets few tokens through to be reviewed that were never good, and all that were. A cache before it
// remembers its answers, so a token comes to it once in a while.
type tokenLimiter struct {
	reviewer authenticator.Token
	limit    flowcontrol.PassiveRateLimiter
	good     *cache.LRUExpireCache // by the hash of the token
}

func newTokenLimiter(reviewer authenticator.Token, c clock.PassiveClock) *tokenLimiter {
	return &tokenLimiter{
		reviewer: reviewer,
		limit:    flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewQPS, reviewBurst, c),
		good:     cache.NewLRUExpireCacheWithClock(acquaintances, c),
	}
}

// AuthenticateToken implements authenticator.Token. An unknown token is no error: errors are not remembered.
func (s *tokenLimiter) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	key := sha256.Sum256([]byte(token))
	if _, was := s.good.Get(key); !was && !s.limit.TryAccept() {
		return nil, false, errBusy
	}
	response, known, err := s.reviewer.AuthenticateToken(ctx, token)
	switch {
	case unanswered(err), errors.Is(err, context.DeadlineExceeded), err != nil && ctx.Err() != nil:
		return nil, false, err
	case err != nil, !known:
		s.good.Remove(key)
		return nil, false, nil
	}
	s.good.Add(key, nil, remember)
	return response, true, nil
}
