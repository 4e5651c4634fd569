// Package check runs the controller of whereabouts that gives each node a slice of a range of addresses, as its main
// does, in the namespace of the networks. The events that it records are left to the end of the process, as in main.
package check

import (
	"context"
	"testing"
	"time"

	nadclient "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/clientset/versioned"
	defs "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/generated/clientset/versioned"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/generated/informers/externalversions"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/node-controller"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

// networks are the custom resources of another project that the controller reads.
var networks = reconciletest.Resource{Kind: "NetworkAttachmentDefinition",
	GroupVersionResource: schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1",
		Resource: "network-attachment-definitions"}}

// check runs Check. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, s reconciletest.Scenario) {
	t.Helper()
	s.Run = run
	s.Server = reconciletest.Options{Kinds: builtin.Kinds(), CRDs: []string{"crd"},
		Resources: []reconciletest.Resource{networks}}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	own, err := versioned.NewForConfig(cfg)
	if err != nil {
		return err
	}
	network, err := nadclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	all := informers.NewSharedInformerFactory(client, 30*time.Second)
	pools := externalversions.NewSharedInformerFactory(own, 30*time.Second)
	definitions := defs.NewSharedInformerFactory(network, 30*time.Second)
	c := node_controller.NewController(ctx, client, own, network, all.Core().V1().Nodes(),
		pools.Whereabouts().V1alpha1().NodeSlicePools(),
		definitions.K8sCniCncfIo().V1().NetworkAttachmentDefinitions(), false, metav1.NamespaceDefault)
	all.Start(ctx.Done())
	pools.Start(ctx.Done())
	definitions.Start(ctx.Done())
	err = c.Run(ctx, 1)
	all.Shutdown()
	pools.Shutdown()
	return err
}
