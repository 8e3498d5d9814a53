package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	askEvery  = time.Second
	tellEvery = 30 * time.Second
)

// awaitAPIServer returns once the API server answers: a controller that ends because it does not would be restarted
// after ever longer pauses. It returns an error if the API server refuses the credentials, or ctx has ended.
func awaitAPIServer(ctx context.Context, kubeconfig *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(kubeconfig)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var told time.Time
	return wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		_, err := client.RESTClient().Get().AbsPath("/api").DoRaw(ctx)
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return false, fmt.Errorf("asking the API server: %w", err)
		}
		if err != nil && time.Since(told) >= tellEvery {
			told = time.Now()
			klog.FromContext(ctx).Error(err, "The API server does not answer; waiting for it", "server", kubeconfig.Host)
		}
		return err == nil, nil
	})
}
