package middleware

const RequestIDMetadataKey = "x-request-id"
