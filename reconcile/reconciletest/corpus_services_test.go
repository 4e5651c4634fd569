package reconciletest

// servicesCorpus is about Services of all types. Ports and addresses that it chooses are of those that a real server
// does not draw, and each is chosen in one conversation.
var servicesCorpus = []conversation{
	{"Service of the type NodePort", []step{
		post("svc", "a", service(`"type":"NodePort","ports":[{"port":80}]`)), get("svc/a"),
		post("svc", "b", service(`"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81,`+
			`"protocol":"UDP"},{"name":"c","port":80,"protocol":"UDP"}]`)),
		post("svc", "c", service(`"type":"NodePort","ports":[]`)),
		post("svc", "c", service(`"type":"NodePort","clusterIP":"None","ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"NodePort","externalTrafficPolicy":"Local","ports":[{"port":80}]`)),
		post("svc", "d", service(`"type":"NodePort","externalTrafficPolicy":"Local","healthCheckNodePort":30060,`+
			`"ports":[{"port":80}]`)),
		post("svc", "d", service(`"type":"NodePort","allocateLoadBalancerNodePorts":false,"loadBalancerClass":"a/b",`+
			`"loadBalancerSourceRanges":["10.0.0.0/8"],"externalName":"x.example.com","ports":[{"port":80}]`)),
		post("svc", "d", service(`"type":"NodePort","externalName":"x.example.com","ports":[{"port":80}]`)),
		post("svc?dryRun=All", "e", service(`"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81},`+
			`{"name":"c","port":81,"protocol":"UDP"}]`)),
		post("svc?dryRun=All", "e", service(`"type":"NodePort","ports":[{"port":80,"nodePort":7}]`)),
		get("svc?fieldSelector=spec.type%3DNodePort"), del("svc/b", ``), del("svc", ``)}},
	{"Service that chooses ports of the nodes", []step{
		post("svc", "a", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30001}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30001}]`)),
		post("svc?dryRun=All", "b", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30001}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"port":80,"nodePort":29999}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"port":80,"nodePort":32768}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"port":80,"nodePort":-1}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30002},`+
			`{"name":"b","port":81,"nodePort":30002}]`)),
		post("svc", "b", service(`"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":80,`+
			`"protocol":"UDP","nodePort":30002}]`)),
		post("svc", "c", service(`"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30003},{"name":"b",`+
			`"port":80,"protocol":"UDP","nodePort":30004}]`)),
		post("svc", "d", service(`"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30005},{"name":"b",`+
			`"port":80,"nodePort":30005}]`)),
		post("svc", "d", service(`"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30005},{"name":"b",`+
			`"port":80,"protocol":"UDP","nodePort":30005}]`)),
		post("svc", "e", service(`"ports":[{"port":80,"nodePort":30006}]`)),
		post("svc", "e", `"spec":{"type":"ExternalName","externalName":"x","ports":[{"port":80,"nodePort":30007}]}`),
		post("svc", "f", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30007}]`)),
		merge("svc/a", `{"spec":{"ports":[{"port":80,"nodePort":30008}]}}`),
		post("svc", "g", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30001}]`)),
		merge("svc/a", `{"spec":{"ports":[{"port":80,"nodePort":30001}]}}`),
		merge("svc/a", `{"spec":{"ports":[{"port":80,"nodePort":1}]}}`),
		merge("svc/a?dryRun=All", `{"spec":{"ports":[{"port":80,"nodePort":1}]}}`),
		merge("svc/a", `{"spec":{"ports":[{"name":"a","port":80,"nodePort":30008},{"name":"b","port":81,`+
			`"nodePort":30008}]}}`),
		merge("svc/a", `{"spec":{"ports":[{"name":"a","port":80,"nodePort":30009},{"name":"b","port":81,`+
			`"protocol":"UDP","nodePort":30009}]}}`),
		del("svc/g", ``), post("svc", "h", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30001}]`))}},
	{"Service whose ports change", []step{
		post("svc", "a", service(`"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"name":"b","port":82},{"name":"a","port":83,`+
			`"protocol":"UDP"}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"name":"c","port":82},{"name":"a","port":83}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"name":"c","port":84},{"name":"d","port":85},`+
			`{"name":"e","port":85,"protocol":"UDP"}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":84}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":86}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":86,"nodePort":30010}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":86},{"port":87,"nodePort":30010,"name":"x"}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"name":"","port":86},{"port":87}]`)),
		put("svc/a?dryRun=All", service(`"type":"NodePort","ports":[{"name":"x","port":86},{"name":"y","port":87}]`)),
		apply("svc/b?fieldManager=me", service(`"type":"NodePort","ports":[{"port":80}]`)),
		apply("svc/b?fieldManager=me", service(`"type":"NodePort","ports":[{"port":80,"targetPort":8080}]`)),
		apply("svc/b?fieldManager=me", service(`"type":"NodePort","ports":[{"port":81}]`)),
		apply("svc/b?fieldManager=you", service(`"ports":[{"port":81,"nodePort":30011}]`)),
		apply("svc/b?fieldManager=me", service(`"ports":[{"port":81}]`)),
		apply("svc/b?fieldManager=you", service(`"ports":[{"port":81}]`))}},
	{"Service of the type LoadBalancer", []step{
		post("svc", "a", service(`"type":"LoadBalancer","ports":[{"port":80}]`)+
			`,"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`),
		post("svc", "b", service(`"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,`+
			`"loadBalancerClass":"example.com/x","loadBalancerSourceRanges":["10.0.0.0/8"," 192.0.2.0/24 "],`+
			`"loadBalancerIP":"192.0.2.9","ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"name":"a",`+
			`"port":80,"nodePort":30020},{"name":"b","port":80,"protocol":"UDP"},{"name":"c","port":81}]`)),
		post("svc", "d", service(`"type":"LoadBalancer","loadBalancerClass":"a b","loadBalancerSourceRanges":["x",`+
			`"10.0.0.1/8","010.0.0.0/8","::1/128"],"clusterIP":"None","ports":[]`)),
		post("svc", "d", `"metadata":{"annotations":{"service.beta.kubernetes.io/load-balancer-source-ranges":`+
			`"10.0.0.0/8, x,192.0.2.1/24"}},`+service(`"type":"LoadBalancer","ports":[{"port":80}]`)),
		post("svc", "d", `"metadata":{"annotations":{"service.beta.kubernetes.io/load-balancer-source-ranges":`+
			`"10.0.0.0/8"}},`+service(`"ports":[{"port":80}]`)),
		post("svc", "d", `"metadata":{"annotations":{"service.beta.kubernetes.io/load-balancer-source-ranges":`+
			`" "}},`+service(`"type":"LoadBalancer","ports":[{"port":80}]`)),
		merge("svc/d", `{"metadata":{"annotations":{"service.beta.kubernetes.io/load-balancer-source-ranges":"x"}}}`),
		merge("svc/a", `{"spec":{"loadBalancerClass":"example.com/x"}}`),
		merge("svc/b", `{"spec":{"loadBalancerClass":"example.com/y"}}`),
		merge("svc/b", `{"spec":{"loadBalancerClass":null}}`),
		merge("svc/b", `{"spec":{"allocateLoadBalancerNodePorts":true}}`),
		merge("svc/b", `{"spec":{"allocateLoadBalancerNodePorts":false}}`),
		merge("svc/b", `{"spec":{"ports":[{"port":80}]}}`),
		merge("svc/b", `{"spec":{"ports":[{"port":80,"nodePort":0}]}}`),
		merge("svc/a", `{"spec":{"allocateLoadBalancerNodePorts":null}}`),
		merge("svc/a", `{"spec":{"loadBalancerSourceRanges":["10.0.0.0/8"]}}`),
		merge("svc/a", `{"spec":{"type":"NodePort"}}`),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":80}]`)),
		get("svc?fieldSelector=spec.type%3DLoadBalancer"), del("svc/a", ``)}},
	{"health checks of a Service", []step{
		post("svc", "a", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]`)),
		post("svc", "b", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30030,`+
			`"ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30030,`+
			`"ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30031,`+
			`"ports":[{"port":80,"nodePort":30031}]`)),
		post("svc", "c", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":1,`+
			`"ports":[{"port":80}]`)),
		post("svc?dryRun=All", "c", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local",`+
			`"healthCheckNodePort":70000,"ports":[{"port":80}]`)),
		post("svc?dryRun=All", "c", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local",`+
			`"ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"LoadBalancer","healthCheckNodePort":30032,"ports":[{"port":80}]`)),
		put("svc/a", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","ports":[{"port":80}]`)),
		put("svc/b", service(`"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30033,`+
			`"ports":[{"port":80}]`)),
		merge("svc/b", `{"spec":{"healthCheckNodePort":null}}`),
		merge("svc/b", `{"spec":{"ports":[{"port":80,"nodePort":30030}]}}`),
		merge("svc/b", `{"spec":{"externalTrafficPolicy":"Cluster"}}`),
		merge("svc/b", `{"spec":{"externalTrafficPolicy":"Local","healthCheckNodePort":30030}}`),
		merge("svc/b", `{"spec":{"externalTrafficPolicy":"Cluster","healthCheckNodePort":30034}}`),
		merge("svc/b", `{"spec":{"externalTrafficPolicy":null}}`),
		merge("svc/b", `{"spec":{"externalTrafficPolicy":"Local"}}`),
		put("svc/b", service(`"ports":[{"port":80}]`)),
		post("svc", "c", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30030}]`))}},
	{"Service of the type ExternalName", []step{
		post("svc", "a", `"spec":{"type":"ExternalName","externalName":"x.example.com."}`), get("svc/a"),
		post("svc", "b", `"spec":{"type":"ExternalName"}`), post("svc", "b", `"spec":{"type":"ExternalName",`+
			`"externalName":"A b"}`),
		post("svc", "b", `"spec":{"type":"ExternalName","externalName":".","clusterIP":"None"}`),
		post("svc", "b", `"spec":{"type":"ExternalName","externalName":"x","clusterIP":"10.96.0.40",`+
			`"clusterIPs":["10.96.0.40"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}`),
		post("svc", "b", `"spec":{"type":"ExternalName","externalName":"x","externalTrafficPolicy":"Local",`+
			`"externalIPs":["192.0.2.1"],"ports":[{"port":80}]}`),
		post("svc", "b", `"spec":{"type":"ExternalName","externalName":"x","internalTrafficPolicy":"Local",`+
			`"externalIPs":["192.0.2.1"],"ports":[{"port":80}],"selector":{"a":"b"}}`),
		get("svc/b"), get("svc"), merge("svc/b", `{"metadata":{"labels":{"x":"y"}}}`),
		merge("svc/b", `{"spec":{"type":"ClusterIP"}}`), merge("svc/b", `{"spec":{"type":"ExternalName"}}`),
		merge("svc/b", `{"spec":{"externalName":null}}`), merge("svc/b", `{"spec":{"clusterIP":"10.96.0.40"}}`),
		apply("svc/c?fieldManager=me", `"spec":{"type":"ExternalName","externalName":"x"}`),
		apply("svc/c?fieldManager=me", `"spec":{"type":"ExternalName","externalName":"y"}`),
		apply("svc/c?fieldManager=you", `"spec":{"type":"ExternalName","externalName":"z"}`),
		put("svc/c", `"spec":{"type":"ExternalName","externalName":"w"}`),
		get("svc?fieldSelector=spec.type%3DExternalName"), del("svc/b", ``)}},
	{"Service whose type changes", []step{
		post("svc", "a", service(`"ports":[{"port":80}]`)), merge("svc/a", `{"spec":{"type":"NodePort"}}`),
		merge("svc/a", `{"spec":{"type":"LoadBalancer"}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
		merge("svc/a", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"a/b"}}`),
		merge("svc/a", `{"spec":{"type":"NodePort","loadBalancerClass":"a/b"}}`),
		merge("svc/a", `{"spec":{"externalTrafficPolicy":"Local"}}`), merge("svc/a", `{"spec":{"type":"ClusterIP"}}`),
		merge("svc/a", `{"spec":{"type":"LoadBalancer","loadBalancerClass":"a/b","externalTrafficPolicy":"Local"}}`),
		merge("svc/a", `{"spec":{"type":"ClusterIP","ports":[{"port":81}]}}`),
		merge("svc/a", `{"spec":{"type":"LoadBalancer"}}`),
		merge("svc/a", `{"spec":{"type":"ClusterIP","ports":[{"port":81,"nodePort":30050}]}}`),
		merge("svc/a", `{"spec":{"type":"ClusterIP","allocateLoadBalancerNodePorts":false}}`),
		merge("svc/a", `{"spec":{"type":"ClusterIP","externalTrafficPolicy":"Local"}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName"}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName","externalName":"x"}}`),
		merge("svc/a", `{"spec":{"type":"NodePort"}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName","clusterIP":"None"}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName","ports":[{"port":81,"nodePort":30050}]}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName"}}`),
		put("svc/a", service(`"type":"LoadBalancer","ports":[{"port":81}]`)),
		put("svc/a", `"spec":{"type":"ExternalName","externalName":"x"}`),
		put("svc/a", service(`"clusterIP":"10.96.0.50","ports":[{"port":81}]`)),
		put("svc/a", service(`"type":"NodePort","ports":[{"port":81}]`)),
		put("svc/a", service(`"ports":[{"port":81}]`)),
		post("svc", "b", service(`"clusterIP":"None"`)), merge("svc/b", `{"spec":{"type":"NodePort"}}`),
		merge("svc/b", `{"spec":{"type":"NodePort","clusterIP":null,"ports":[{"port":80}]}}`),
		merge("svc/b", `{"spec":{"type":"ExternalName","externalName":"x"}}`),
		merge("svc/b", `{"spec":{"type":"ClusterIP","ports":[{"port":80}]}}`),
		apply("svc/c?fieldManager=me", service(`"type":"LoadBalancer","ports":[{"port":80}]`)),
		apply("svc/c?fieldManager=me", service(`"type":"ClusterIP","ports":[{"port":80}]`)),
		apply("svc/c?fieldManager=me", service(`"type":"NodePort","ports":[{"port":80,"nodePort":30051}]`)),
		apply("svc/c?fieldManager=me", service(`"type":"ClusterIP","ports":[{"port":80,"nodePort":30051}]`)),
		apply("svc/c?fieldManager=me", service(`"ports":[{"port":80}]`))}},
	{"status of a Service", []step{
		post("svc", "a", service(`"type":"LoadBalancer","ports":[{"port":80}]`)),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"x.example.com",`+
			`"ports":[{"port":80,"protocol":"TCP","error":"a/b"}]},{"ip":"192.0.2.2","ipMode":"Proxy"}]}}}`),
		merge("svc/a", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1","hostname":"y"}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"x"},{"ip":"010.0.0.1"},`+
			`{"hostname":"A b"},{"hostname":"192.0.2.1"},{"hostname":"a","ipMode":"VIP"}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"FD00::1"}]}}}`),
		put("svc/a/status", service(`"type":"LoadBalancer","ports":[{"port":80}]`)+
			`,"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.3"}]}}`),
		put("svc/a/status", service(`"ports":[{"port":80}]`)+
			`,"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.4"}]}}`),
		apply("svc/a/status?fieldManager=me", `"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.5"}]}}`),
		apply("svc/a/status?fieldManager=me&force=true",
			`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.5","ipMode":"VIP"}]}}`),
		apply("svc/a/status?fieldManager=me&force=true", `"status":{"loadBalancer":{}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":null}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
		merge("svc/a", `{"spec":{"type":"NodePort"}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[]}}}`)}},
	{"Service that chooses its address", []step{
		post("svc", "a", service(`"clusterIP":"10.96.0.60","ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.60","ports":[{"port":80}]`)),
		post("svc?dryRun=All", "b", service(`"clusterIP":"10.96.0.60","ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.1","ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.0","ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"192.0.2.1","ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIPs":["10.96.0.61"],"ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.61","clusterIPs":["10.96.0.62"],"ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.61","clusterIPs":["10.96.0.61","10.96.0.62"],`+
			`"ports":[{"port":80}]`)),
		post("svc", "b", service(`"clusterIP":"None","clusterIPs":["None","10.96.0.62"],"ports":[{"port":0}]`)),
		post("svc", "b", service(`"ipFamilies":["IPv4","IPv4"],"ports":[{"port":0}]`)),
		post("svc", "b", service(`"clusterIP":"10.96.0.61","clusterIPs":["10.96.0.61"],"ports":[{"port":0}]`)),
		post("svc", "b", service(`"type":"LoadBalancer","clusterIP":"10.96.0.61","ipFamilies":["IPv4"],`+
			`"ports":[{"port":80}]`)),
		merge("svc/a", `{"spec":{"clusterIP":"10.96.0.63"}}`),
		merge("svc/a", `{"spec":{"clusterIP":"10.96.0.63","clusterIPs":["10.96.0.63"]}}`),
		merge("svc/a", `{"spec":{"clusterIP":"10.96.0.63","clusterIPs":null}}`),
		merge("svc/a", `{"spec":{"type":"ExternalName","externalName":"x"}}`),
		post("svc", "c", service(`"clusterIP":"10.96.0.60","ports":[{"port":80}]`)),
		merge("svc/a", `{"spec":{"type":"ClusterIP","clusterIP":"10.96.0.60"}}`),
		merge("svc/a", `{"spec":{"type":"ClusterIP","clusterIP":"10.96.0.63","externalName":null}}`),
		del("svc/c", ``), post("svc", "d", service(`"clusterIP":"10.96.0.60","ports":[{"port":80}]`)),
		post("svc", "1e", service(`"ports":[{"port":80}]`)),
		post("svc", "f", `"spec":{"clusterIP":"None","ipFamilyPolicy":"SingleStack"}`),
		merge("svc/f", `{"spec":{"selector":{"a":"b"}}}`)}},
	{"affinity and what else a Service has", []step{
		post("svc", "a", service(`"sessionAffinity":"ClientIP","ports":[{"port":80}]`)),
		post("svc", "b", service(`"sessionAffinity":"ClientIP",`+
			`"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":0}},`+
			`"ports":[{"port":80}]`)),
		post("svc", "b", service(`"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":`+
			`{"timeoutSeconds":86401}},"ports":[{"port":80}]`)),
		post("svc", "b", service(`"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":`+
			`{"timeoutSeconds":86400}},"clusterIP":"None","externalIPs":["192.0.2.1"],"ports":[{"port":80}]`)),
		merge("svc/a", `{"spec":{"sessionAffinity":"None"}}`),
		merge("svc/a", `{"spec":{"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":7}}}}`),
		merge("svc/a", `{"spec":{"sessionAffinity":"ClientIP",`+
			`"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":7}}}}`),
		merge("svc/a", `{"spec":{"sessionAffinityConfig":null}}`),
		post("svc", "c", service(`"externalIPs":["192.0.2.1","FD00::1"],"ports":[{"port":80}]`)),
		post("svc", "d", service(`"externalIPs":["x","010.0.0.1","0.0.0.0","127.0.0.1","169.254.0.1","224.0.0.1"],`+
			`"ports":[{"port":80}]`)),
		merge("svc/c", `{"spec":{"externalTrafficPolicy":"Local"}}`), merge("svc/c", `{"spec":{"externalIPs":null}}`),
		post("svc", "d", service(`"externalTrafficPolicy":"Cluster","ports":[{"port":80}]`)),
		post("svc", "d", service(`"trafficDistribution":"PreferClose","ports":[{"port":80}]`)),
		merge("svc/d", `{"spec":{"trafficDistribution":"PreferSameNode"}}`),
		merge("svc/d", `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"Auto",`+
			`"service.kubernetes.io/topology-aware-hints":"Auto"}}}`),
		merge("svc/d", `{"metadata":{"annotations":{"service.kubernetes.io/topology-mode":"Disabled"}}}`)}},
	{"events of Services", []step{
		post("svc", "a", service(`"type":"LoadBalancer","ports":[{"port":80}]`)),
		watching("w", "svc?resourceVersion={{a.rv}}"),
		merge("svc/a/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`),
		merge("svc/a", `{"spec":{"type":"NodePort"}}`), del("svc/a", ``), events("w", 3)}},
}
