package reconciletest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// conversionPatience is how long the server waits for a conversion.
const conversionPatience = 30 * time.Second

// WebhookCall is a call of the server to a webhook.
type WebhookCall struct {
	// Name is that of the webhook in its configuration, or of the CustomResourceDefinition for a conversion.
	Name string
	// URL is where the server finds it.
	URL string
}

// InjectWebhooks sets what happens to the calls of the server to webhooks from now on, as [Link.Inject] does for
// requests to the server: [ConnectionRefused], [Delay], [CertificateEnded], [WrongAnswer] and the others. The context
// of the fault ends when the server does not wait any more, so a [Delay] that is long enough is a webhook that is too
// slow.
func (s *Server) InjectWebhooks(fault func(WebhookCall) Fault) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.hookFault = fault
}

// webhookCalls returns how many calls there were.
func webhookCalls(s *Server) int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.hookCalls
}

// ConnectionRefused is a webhook that is down.
func ConnectionRefused(context.Context, func() (*http.Response, error)) (*http.Response, error) {
	return nil, refusedTo("443")
}

// CertificateEnded is a webhook whose certificate was not renewed.
func CertificateEnded(context.Context, func() (*http.Response, error)) (*http.Response, error) {
	now := time.Now().UTC()
	ended := &x509.Certificate{NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(-time.Hour)}
	return nil, &tls.CertificateVerificationError{
		UnverifiedCertificates: []*x509.Certificate{ended},
		Err: x509.CertificateInvalidError{Cert: ended, Reason: x509.Expired, Detail: fmt.Sprintf(
			"current time %s is after %s", now.Format(time.RFC3339), ended.NotAfter.Format(time.RFC3339))},
	}
}

// WrongAnswer is a webhook that answers with 200 and something that is no review.
func WrongAnswer(_ context.Context, serve func() (*http.Response, error)) (*http.Response, error) {
	if resp, err := serve(); err == nil {
		resp.Body.Close()
	}
	return answerJSON(map[string]string{"kind": "Surprise"}), nil
}

// reviewUID returns the UID of a review. It is none of an object, so that what is asked about changes no other UID.
func reviewUID(s *Server) types.UID {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.reviews++
	return types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012x", s.reviews))
}

// webhookFailed reports whether a request has failed since a webhook could not be called.
func webhookFailed(err error) bool {
	return err != nil && !isNotModelled(err) && slices.ContainsFunc([]string{"failed calling webhook",
		"conversion webhook for", errLate.ErrStatus.Message},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// webhook is where a call goes to.
type webhook struct {
	name     string
	config   admissionregistrationv1.WebhookClientConfig
	optional bool // it does no harm if it is not there
}

// base returns the host and the path of the webhook's URL.
func (w webhook) base() (*url.URL, error) {
	if s := w.config.Service; s != nil {
		port := int32(443)
		if s.Port != nil {
			port = *s.Port
		}
		u := &url.URL{Scheme: "https", Host: net.JoinHostPort(s.Name+"."+s.Namespace+".svc", strconv.Itoa(int(port)))}
		if s.Path != nil {
			u.Path = *s.Path
		}
		return u, nil
	}
	if w.config.URL == nil {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	return url.Parse(*w.config.URL)
}

// post sends a review to a webhook and reads the answer into another one. The error is that of client-go, which the
// real server uses, too.
func (w webhook) post(s *Server, c *call, timeout time.Duration, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	base, err := w.base()
	if err != nil {
		return err
	}
	trip := &webhookTrip{server: s, webhook: w, exempt: c.link == s.direct}
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: base.Scheme + "://" + base.Host, APIPath: base.Path, QPS: -1, Transport: trip,
		UserAgent: "kube-apiserver",
		ContentConfig: rest.ContentConfig{
			NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		return err
	}
	if c.deadline.over() {
		return context.DeadlineExceeded
	}
	timeout = c.deadline.within(timeout)
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	told := (timeout + time.Second - 1).Truncate(time.Second) // the webhook is told whole seconds
	result := client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Timeout(told).Do(ctx)
	if err := cmp.Or(trip.notModelled, result.Error()); err != nil {
		return err
	}
	answer, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(answer, response)
	}
	return err
}

// webhookTrip makes the calls of one webhook.
type webhookTrip struct {
	server      *Server
	webhook     webhook
	exempt      bool  // no fault meets it
	notModelled error // set if nothing in this process can be the webhook
}

func (t *webhookTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	s := t.server
	s.store.mu.Lock()
	inject := s.hookFault
	s.hookCalls++
	s.store.mu.Unlock()
	serve := func() (*http.Response, error) { return t.serve(req) }
	if inject != nil && !(t.exempt && s.exemptUsers) {
		if fault := inject(WebhookCall{Name: t.webhook.name, URL: req.URL.Scheme + "://" + req.URL.Host +
			req.URL.Path}); fault != nil {
			return fault(req.Context(), serve)
		}
	}
	return serve()
}

// serve lets a handler answer, or what a program listens on.
func (t *webhookTrip) serve(req *http.Request) (*http.Response, error) {
	for _, host := range []string{req.URL.Host, req.URL.Hostname()} {
		if h := t.server.webhooks[host]; h != nil {
			return handle(h, req)
		}
	}
	if !t.server.hosts.could(t.webhook, req.URL.Host) {
		t.notModelled = notModelled("the webhook %s at %s, which nothing in this process serves: name a handler of %s "+
			"in Options.Webhooks, or run the program with Link.Context", t.webhook.name, req.URL.Host,
			req.URL.Hostname())
		return nil, t.notModelled
	}
	roots := x509.NewCertPool()
	if pem := t.webhook.config.CABundle; len(pem) > 0 && !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
	}
	transport := &http.Transport{
		// A connection for each call, so that nothing of it is left over.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			if req.URL.Port() == "" {
				address = net.JoinHostPort(req.URL.Hostname(), "443")
			}
			return t.server.hosts.dial(ctx, address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: req.URL.Hostname(), MinVersion: tls.VersionTLS12},
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// handle lets a handler answer, until the server does not wait any more.
func handle(h http.Handler, req *http.Request) (*http.Response, error) {
	forwarded := req.Clone(req.Context())
	forwarded.RequestURI, forwarded.Host = req.URL.RequestURI(), req.URL.Host
	done := make(chan *http.Response, 1)
	var group lifecycle.Group
	group.Go("webhook", func() {
		defer close(done)
		recorded := httptest.NewRecorder()
		if lifecycle.Try(func() { h.ServeHTTP(recorded, forwarded) }) == nil { // a panic ends the connection
			done <- recorded.Result()
		}
	})
	select {
	case resp := <-done:
		if resp == nil {
			return nil, io.EOF
		}
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}
