package page

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lockstep-sh/lockstep/cmd/controller/gate"
)

// Setup adds the page to a manager, whose cache may keep no more than package cachetransform says. It is served over
// HTTPS at an address by every replica, whichever leads. certDir has the tls.crt and tls.key of the server, which may
// be renewed; if it is empty, the server makes its own. deviceClasses are those of FairShareArgs.
func Setup(mgr manager.Manager, address, certDir string, deviceClasses map[string]v1.ResourceName) error {
	guard, err := gate.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("preparing to ask the API server who may see the page: %w", err)
	}
	page := New(mgr.GetClient(), clock.RealClock{}, deviceClasses)
	handler, err := page.Handler(mgr.GetLogger().WithName("page"), guard.Filter, guard.MayList)
	if err != nil {
		return err
	}
	certificates, err := serving(mgr, certDir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for the page: %w", err)
	}
	server := &manager.Server{
		Name: "page", Listener: tls.NewListener(listener, certificates), ShutdownTimeout: new(5 * time.Second),
		Server: &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
			IdleTimeout: 90 * time.Second, MaxHeaderBytes: 64 << 10,
		},
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the page: %w", err)
	}
	if err := mgr.Add(sampler{page}); err != nil {
		return fmt.Errorf("adding the history of queues: %w", err)
	}
	return nil
}

// serving returns the TLS configuration with the certificate in a folder, or else with one of its own.
func serving(mgr manager.Manager, dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if dir != "" {
		watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("reading the certificate of the page: %w", err)
		}
		if err := mgr.Add(watcher); err != nil {
			return nil, fmt.Errorf("watching the certificate of the page: %w", err)
		}
		config.GetCertificate = watcher.GetCertificate
		return config, nil
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the page: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("using the certificate made for the page: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// sampler notes how queues stand, all the time.
type sampler struct{ page *Page }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (sampler) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s sampler) Start(ctx context.Context) error {
	ticker := s.page.clock.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		if err := s.page.Sample(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to note how queues stand; trying again", "after", sampleEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
