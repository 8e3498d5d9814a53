package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// served is a process that is measured, and what it serves.
type served struct {
	*localcluster.Process
	url string
	// pprof is where it serves profiles, if not at url.
	pprof  string
	client *http.Client
	// stopProfile ends the taking of profiles and waits for the last one.
	stopProfile func()
}

func serving(url string) served {
	return served{
		url: url, pprof: url, stopProfile: func() {},
		// A self-signed certificate that it makes when it starts.
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	}
}

// get asks for a path.
func (s *served) get(ctx context.Context, path string, into io.Writer) error {
	return s.fetch(ctx, s.url+path, into)
}

func (s *served) fetch(ctx context.Context, url string, into io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", s.Name, err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", s.Name, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s says %s", s.Name, url, response.Status)
	}
	if _, err := io.Copy(into, response.Body); err != nil {
		return fmt.Errorf("asking %s: %w", s.Name, err)
	}
	return nil
}

// metrics returns all that it serves now.
func (s *served) metrics(ctx context.Context) ([]byte, error) {
	var text bytes.Buffer
	if err := s.get(ctx, "/metrics", &text); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// slice is the length of one profile. A profile has a fixed length, and a run has not, so that a run
// is profiled in slices, which go tool pprof merges.
const slice = 2 * time.Second

// profilePoll is how often a process is asked for its first profile.
const profilePoll = 20 * time.Millisecond

// profileOf returns the beginning of the names of the profiles of a process.
func (f *fixture) profileOf(label, process string) string {
	return filepath.Join(f.profiles, strings.NewReplacer("/", ",", "=", "").Replace(label)+","+process)
}

// profile takes CPU profiles until stopProfile is called, which also takes one of all allocations.
func (s *served) profile(path string) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for n := 0; ctx.Err() == nil; {
			cpu := fmt.Sprintf("/debug/pprof/profile?seconds=%d", slice/time.Second)
			if err := s.profileInto(fmt.Sprintf("%s-%d.pb.gz", path, n), cpu); err != nil {
				_ = await.Pause(ctx, profilePoll) // it does not serve yet
				continue
			}
			n++
		}
	})
	s.stopProfile = func() {
		cancel()
		done.Wait()
		if err := s.profileInto(path+"-allocs.pb.gz", "/debug/pprof/allocs"); err != nil {
			progress("taking a profile: %v", err)
		}
	}
}

// profileInto saves what the process answers.
func (s *served) profileInto(name, path string) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	if err := errors.Join(s.fetch(context.Background(), s.pprof+path, file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

const stopTimeout = 10 * time.Second

// stop ends the process.
func (s *served) stop() error {
	s.stopProfile()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.Stop(ctx)
}

func (s *served) ended() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}
