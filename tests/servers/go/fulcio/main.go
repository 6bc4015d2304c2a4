// Fulcio's own server, certificate authority and identity code behind HTTP, without the command's other authorities (KMS,
// PKCS #11, cloud), whose libraries Debian does not package.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	ctclient "github.com/google/certificate-transparency-go/client"
	"github.com/google/certificate-transparency-go/jsonclient"
	"github.com/grpc-ecosystem/grpc-gateway/runtime"
	"github.com/sigstore/fulcio/pkg/ca/fileca"
	"github.com/sigstore/fulcio/pkg/config"
	gw "github.com/sigstore/fulcio/pkg/generated/protobuf"
	"github.com/sigstore/fulcio/pkg/server"
	v1 "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	"github.com/sigstore/sigstore/pkg/signature"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	cert := flag.String("fileca-cert", "", "")
	key := flag.String("fileca-key", "", "")
	pass := flag.String("fileca-key-passwd", "", "")
	ct := flag.String("ct-log-url", "", "")
	cfgPath := flag.String("config-path", "", "")
	port := flag.String("port", "5555", "")
	grpcPort := flag.String("grpc-port", "5554", "")
	flag.Parse()
	raw, err := os.ReadFile(*cfgPath)
	must(err)
	cfg, err := config.Read(raw)
	must(err)
	ca, err := fileca.NewFileCA(*cert, *key, *pass, false)
	must(err)
	var client *ctclient.LogClient
	if *ct != "" {
		client, err = ctclient.New(*ct, &http.Client{}, jsonclient.Options{})
		must(err)
	}
	registry, err := signature.NewAlgorithmRegistryConfig([]v1.PublicKeyDetails{
		v1.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256, v1.PublicKeyDetails_PKIX_ECDSA_P384_SHA_384, v1.PublicKeyDetails_PKIX_ECDSA_P521_SHA_512,
		v1.PublicKeyDetails_PKIX_RSA_PKCS1V15_2048_SHA256, v1.PublicKeyDetails_PKIX_RSA_PKCS1V15_3072_SHA256, v1.PublicKeyDetails_PKIX_RSA_PKCS1V15_4096_SHA256, v1.PublicKeyDetails_PKIX_ED25519})
	must(err)
	impl := server.NewGRPCCAServer(client, ca, registry, server.NewIssuerPool(cfg))
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return h(config.With(ctx, cfg), req)
	}))
	gw.RegisterCAServer(s, impl)
	l, err := net.Listen("tcp", "127.0.0.1:"+*grpcPort)
	must(err)
	go func() { must(s.Serve(l)) }()
	mux := runtime.NewServeMux(runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD {
		return metadata.Pairs(server.MetadataOIDCTokenKey, strings.Replace(r.Header.Get("Authorization"), "Bearer ", "", 1))
	}), runtime.WithForwardResponseOption(func(ctx context.Context, w http.ResponseWriter, _ proto.Message) error {
		md, ok := runtime.ServerMetadataFromContext(ctx)
		if !ok {
			return nil
		}
		if vals := md.HeaderMD.Get(server.HTTPResponseCodeMetadataKey); len(vals) > 0 {
			code, err := strconv.Atoi(vals[0])
			if err != nil {
				return err
			}
			w.WriteHeader(code)
		}
		return nil
	}))
	must(gw.RegisterCAHandlerFromEndpoint(context.Background(), mux, "127.0.0.1:"+*grpcPort, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+*port, mux))
}
